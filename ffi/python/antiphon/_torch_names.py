"""What the communicators of a process group are called in errors and in the log."""

from __future__ import annotations

from antiphon._arguments import LONGEST_NAME

__all__ = ["named"]

_NOTHING = ("", "undefined")
"""Descriptions that say nothing; PyTorch has one of its own."""


def named(group: str, described: str = "", what: str = "") -> str | None:
    """The name of a communicator of the group of this name, as far as PyTorch has said what that is, and described it; `what` is
    what the communicator is for beside the group's collectives. None where PyTorch has said nothing."""
    words = [] if described in _NOTHING else [described]
    if group:
        words.append(f"(group {group})" if words else f"group {group}")
    if not words:
        return None
    text = ", ".join([" ".join(words), *([what] if what else [])])
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text.encode()[:LONGEST_NAME].decode(errors="ignore")
