"""The language: programs of collectives, by rank, channel, thread block and chunk.

A program says for every rank what its thread blocks do, inside the `with` of a CollectiveProgram; `JSON()` is its plan.
"""

from antiphon.language.channel import (
    MemoryChannel,
    PortChannel,
    SwitchChannel,
    SwitchChannelRankView,
)
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
from antiphon.language.general import JSON
from antiphon.language.internal.types import (
    BufferType,
    ChannelType,
    Chunk,
    DataAccessType,
    Instruction,
    ReduceOperationType,
    SyncType,
)
from antiphon.language.loop import LoopIterationContext
from antiphon.language.program import CollectiveProgram, get_program
from antiphon.language.rank import BaseBuffer, Buffer, Rank, Semaphore
from antiphon.language.thread_block_group import ThreadBlockGroup
from antiphon.language.utils import AlgoSpec, ReplicationPolicy

__all__ = [
    "AlgoSpec",
    "AllGather",
    "AllGatherV",
    "AllReduce",
    "AllToAll",
    "AllToAllV",
    "BaseBuffer",
    "Broadcast",
    "Buffer",
    "BufferType",
    "ChannelType",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "DataAccessType",
    "Gather",
    "Instruction",
    "JSON",
    "LoopIterationContext",
    "MemoryChannel",
    "PortChannel",
    "Rank",
    "Reduce",
    "ReduceOperationType",
    "ReduceScatter",
    "ReplicationPolicy",
    "Scatter",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SwitchChannelRankView",
    "SyncType",
    "TestCollective",
    "ThreadBlockGroup",
    "get_program",
]
