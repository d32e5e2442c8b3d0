"""`antiphon.compile`: the plan of a program that is made from an AlgoSpec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon import _jit
from antiphon.language.utils import AlgoSpec
from antiphon.plan import PlanHandle

__all__ = ["compile"]


def compile(
    algo: Callable[..., Any], algo_spec: AlgoSpec | None = None, rank: int = 0, **given: Any
) -> PlanHandle:
    """The plan of the program that `algo` makes of `algo_spec`, for rank `rank`, as the format's own package has it.

    `algo` is called with the spec, and with the other keyword arguments as they are; the handle has the spec's `tags` and
    `nranks_per_node`. Without a spec it is `jit.compile`, which knows what arguments mean. Raises ValueError if `algo` is not a
    function, and otherwise what `jit.compile` raises.
    """
    if not callable(algo):
        raise ValueError(f"cannot compile {algo!r}: allowed a function that makes a program and returns it")
    if algo_spec is None:
        return _jit.compile(algo, rank=rank, **given)
    return _jit.handle(algo, algo(algo_spec, **given), rank, algo_spec.tags, algo_spec.nranks_per_node)
