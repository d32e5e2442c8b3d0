"""The current program's plan."""

from antiphon._native import JSON
from antiphon.language.internal.globals import get_program

__all__ = ["JSON", "get_program"]
