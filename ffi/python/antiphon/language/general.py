"""The current program's plan."""

from antiphon._native import JSON

__all__ = ["JSON"]
