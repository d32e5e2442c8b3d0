"""Pipelines."""

from antiphon._native import LoopIterationContext

__all__ = ["LoopIterationContext"]
