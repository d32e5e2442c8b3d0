"""Programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon import _native
from antiphon.language._defaults import defaults
from antiphon.language.channel import Channel, MemoryChannel, PortChannel, SwitchChannel
from antiphon.language.collectives import (
    AllGather,
    AllGatherV,
    AllReduce,
    AllToAll,
    AllToAllV,
    Broadcast,
    Collective,
    Gather,
    Reduce,
    ReduceScatter,
    Scatter,
    SendRecv,
    TestCollective,
)
from antiphon.language.internal.globals import get_program
from antiphon.language.internal.types import (
    BufferType,
    ChannelType,
    Chunk,
    DataAccessType,
    Instruction,
    RankGroup,
    ReduceOperationType,
    SyncType,
)
from antiphon.language.rank import BaseBuffer, Semaphore
from antiphon.language.thread_block_group import ThreadBlockGroup
from antiphon.language.utils import AlgoSpec, ReplicationPolicy

# The types that programs are made of are here too: programs import them from here, often by star.
__all__ = [
    "AlgoSpec",
    "AllGather",
    "AllGatherV",
    "AllReduce",
    "AllToAll",
    "AllToAllV",
    "BaseBuffer",
    "Broadcast",
    "BufferType",
    "Channel",
    "ChannelType",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "DataAccessType",
    "Gather",
    "Instruction",
    "MemoryChannel",
    "PortChannel",
    "RankGroup",
    "Reduce",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "Scatter",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SyncType",
    "TestCollective",
    "ThreadBlockGroup",
    "get_program",
]

_ORDER = (
    "name",
    "collective",
    "num_ranks",
    "instances",
    "protocol",
    "instr_fusion",
    "auto_sync",
    "replication_policy",
    "reuse_resources",
    "num_threads_per_block",
    "use_double_scratch_buffer",
    "buffer_alignment",
    "min_message_size",
    "max_message_size",
)


if TYPE_CHECKING:
    from antiphon._native import CollectiveProgram
else:

    class CollectiveProgram(_native.CollectiveProgram):
        __slots__ = ()

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            # The arguments of `jit.compile` hold for all that the program does not give itself.
            said = {*_ORDER[: len(args)], *kwargs}
            given = {name: value for name, value in defaults().items() if name not in said}
            super().__init__(*args, **given, **kwargs)

    CollectiveProgram.__doc__ = _native.CollectiveProgram.__doc__
