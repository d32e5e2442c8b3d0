"""Pipelines."""

from __future__ import annotations

from antiphon._native import LoopIterationContext
from antiphon.language.internal.globals import get_program

__all__ = ["Loop", "LoopIterationContext", "get_program"]


class Loop:
    """The middle stage's way to a pipeline: `with Loop.iteration(unit=..., num_chunks=...) as it:`."""

    @staticmethod
    def iteration(unit: int | float = 2**20, num_chunks: int | float = 1) -> LoopIterationContext:
        """`LoopIterationContext(unit, num_chunks)`: windows of `unit` bytes over `num_chunks` chunks."""
        return LoopIterationContext(unit, num_chunks)
