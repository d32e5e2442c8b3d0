"""The current program."""

from antiphon._native import get_program

__all__ = ["get_program"]
