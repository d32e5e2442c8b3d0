"""Antiphon: execution plans of collective communication, written as programs and run over many ranks.

`antiphon.language` is the language of the programs; `python -m antiphon compile prog.py -o plan.json` compiles one.
`antiphon.all_reduce(x)` and its like make calls over the ranks that a launcher started; `Communicator` is a group of ranks,
`Executor` runs plans over one.
"""

from __future__ import annotations

from antiphon import _aliases

# In the place of that of typing, whose import takes several times as long as all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    # Imported `as` themselves, so that type checkers take them for names of the package.
    from antiphon import (
        code as code,
        collectives as collectives,
        comm as comm,
        communicator as communicator,
        default_algos as default_algos,
        dsl as dsl,
        errors as errors,
        executor_test as executor_test,
        language as language,
        plan as plan,
        topologies as topologies,
        utils as utils,
    )
    from antiphon._compiler import compile as compile
    from antiphon._groups import group as group
    from antiphon._log import log_to as log_to
    from antiphon.code import CodeCall as CodeCall, register_code as register_code, unregister_code as unregister_code
    from antiphon.collectives import (
        all_gather as all_gather,
        all_gather_v as all_gather_v,
        all_reduce as all_reduce,
        all_to_all as all_to_all,
        all_to_all_v as all_to_all_v,
        barrier as barrier,
        broadcast as broadcast,
        gather as gather,
        receive as receive,
        reduce as reduce,
        reduce_scatter as reduce_scatter,
        scatter as scatter,
        send as send,
        send_receive as send_receive,
    )
    from antiphon.comm import CommGroup as CommGroup
    from antiphon.communicator import (
        Communicator as Communicator,
        Memory as Memory,
        Op as Op,
        Stream as Stream,
        UniqueId as UniqueId,
        local_rank as local_rank,
    )
    from antiphon.dsl import jit as jit, presets as presets
    from antiphon.errors import AntiphonError as AntiphonError
    from antiphon.plan import (
        DataType as DataType,
        ExecutionPlan as ExecutionPlan,
        ExecutionPlanRegistry as ExecutionPlanRegistry,
        Executor as Executor,
        PacketType as PacketType,
        PlanHandle as PlanHandle,
        Request as Request,
    )

    __version__: str

# Python may import this whenever it starts, so whatever takes time is looked up only when it is asked for.
_HOMES = {
    "compile": "_compiler",
    "all_gather": "collectives",
    "all_gather_v": "collectives",
    "all_reduce": "collectives",
    "all_to_all": "collectives",
    "all_to_all_v": "collectives",
    "barrier": "collectives",
    "broadcast": "collectives",
    "gather": "collectives",
    "receive": "collectives",
    "reduce": "collectives",
    "reduce_scatter": "collectives",
    "scatter": "collectives",
    "send": "collectives",
    "send_receive": "collectives",
    "group": "_groups",
    "CodeCall": "code",
    "register_code": "code",
    "unregister_code": "code",
    "CommGroup": "comm",
    "Communicator": "communicator",
    "Memory": "communicator",
    "Op": "communicator",
    "Stream": "communicator",
    "UniqueId": "communicator",
    "local_rank": "communicator",
    "log_to": "_log",
    "jit": "dsl",
    "presets": "dsl",
    "AntiphonError": "errors",
    "DataType": "plan",
    "ExecutionPlan": "plan",
    "ExecutionPlanRegistry": "plan",
    "Executor": "plan",
    "PacketType": "plan",
    "PlanHandle": "plan",
    "Request": "plan",
}
_MODULES = {
    "code",
    "collectives",
    "comm",
    "communicator",
    "default_algos",
    "dsl",
    "errors",
    "executor_test",
    "language",
    "plan",
    "topologies",
    "utils",
}

__all__ = ["__version__", *sorted(_HOMES), *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    import importlib

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
        from antiphon._absent import MODULE, missing

        raise AttributeError(missing(f"module {__name__!r}", name, MODULE))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_aliases.install()
