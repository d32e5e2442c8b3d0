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
    """The plan of the program that `algo` makes of `algo_spec`, for rank `rank`: `jit.compile` with its arguments in the order
    of the format's own package.

    `algo` is called with the spec, and with the other keyword arguments as `jit.compile` says. Raises as that does.
    """
    return _jit.compile(algo, algo_spec=algo_spec, rank=rank, **given)
