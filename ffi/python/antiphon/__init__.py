"""Antiphon: execution plans of collective communication, written as programs.

`antiphon.language` is the language of the programs; `python -m antiphon compile prog.py -o plan.json` compiles one.
The names to run plans by are here too; each says when used what it lacks.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from antiphon import _aliases

if TYPE_CHECKING:
    from antiphon.comm import CommGroup
    from antiphon.dsl import jit, presets
    from antiphon.plan import (
        DataType,
        ExecutionPlan,
        ExecutionPlanRegistry,
        Executor,
        PacketType,
        PlanHandle,
        Request,
    )

    __version__: str

# Python may import this whenever it starts: whatever takes time is looked up when it is asked for.
_HOMES = {
    "CommGroup": "comm",
    "DataType": "plan",
    "ExecutionPlan": "plan",
    "ExecutionPlanRegistry": "plan",
    "Executor": "plan",
    "PacketType": "plan",
    "PlanHandle": "plan",
    "Request": "plan",
    "jit": "dsl",
    "presets": "dsl",
}
_MODULES = {"comm", "default_algos", "dsl", "language", "plan", "topologies", "utils"}

__all__ = ["__version__", *sorted(_HOMES), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"antiphon.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"antiphon.{_HOMES[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            value = version("antiphon")
        except PackageNotFoundError:  # Run from a source tree that was not installed.
            value = "0+unknown"
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_aliases.install()
