"""Thread blocks that share operations."""

from antiphon._native import ThreadBlockGroup

__all__ = ["ThreadBlockGroup"]
