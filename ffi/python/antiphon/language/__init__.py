"""The language: programs of collectives, by rank, channel, thread block and chunk.

A program says for every rank what its thread blocks do, inside the `with` of a CollectiveProgram; `JSON()` is its plan.
"""

from antiphon.language.channel import (
    Channel,
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
    DataFormat,
    Instruction,
    RankGroup,
    ReduceOperationType,
    SyncType,
)
from antiphon.language.legacy import Check, Json, MSCCLPPProgram, RankRef, Ref, chunk
from antiphon.language.loop import Loop, LoopIterationContext
from antiphon.language.program import CollectiveProgram, get_program
from antiphon.language.rank import BaseBuffer, Buffer, Rank, Semaphore
# The module too is called as the oldest stage's function is: see there.
from antiphon.language import rank  # isort: skip
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
    "Channel",
    "ChannelType",
    "Check",
    "Chunk",
    "Collective",
    "CollectiveProgram",
    "DataAccessType",
    "DataFormat",
    "Gather",
    "Instruction",
    "JSON",
    "Json",
    "Loop",
    "LoopIterationContext",
    "MSCCLPPProgram",
    "MemoryChannel",
    "PortChannel",
    "Rank",
    "RankGroup",
    "RankRef",
    "Reduce",
    "ReduceOperationType",
    "ReduceScatter",
    "Ref",
    "ReplicationPolicy",
    "Scatter",
    "Semaphore",
    "SendRecv",
    "SwitchChannel",
    "SwitchChannelRankView",
    "SyncType",
    "TestCollective",
    "ThreadBlockGroup",
    "chunk",
    "get_program",
    "rank",
]
