"""Programs."""

from antiphon._native import CollectiveProgram, get_program

__all__ = ["CollectiveProgram", "get_program"]
