"""What the language's modules share."""
