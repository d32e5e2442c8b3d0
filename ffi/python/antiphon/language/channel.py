"""Channels between ranks."""

from __future__ import annotations

from typing import ClassVar

from antiphon import _native
from antiphon._native import MemoryChannel, PortChannel, SwitchChannel, SwitchChannelRankView
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
from antiphon.language.thread_block_group import ThreadBlockGroup

# The types that channels take and return are here too: programs import them from here, often by star.
__all__ = [
    "BufferType",
    "Channel",
    "ChannelType",
    "Chunk",
    "DataAccessType",
    "Instruction",
    "MemoryChannel",
    "PortChannel",
    "RankGroup",
    "ReduceOperationType",
    "SwitchChannel",
    "SwitchChannelRankView",
    "SyncType",
    "ThreadBlockGroup",
    "get_program",
]


class Channel(_native.Channel):
    """A memory or port channel by which rank `src_rank` reaches rank `dst_rank`: MemoryChannel and PortChannel in one.

    Every one made is a new channel. With a `tag`, an int or a str, it is paired with the peer's channel of its type that
    has the same tag; without, the k-th is paired with the peer's k-th. Raises RuntimeError outside of a program and for
    ranks that it does not have, and at the program's end for tags without a counterpart.

    The operations are those of the two classes; `sync` is another name of `data_sync`, and `iter_context` names the open
    loop, to which the operation belongs anyway. Over a port channel `get`, `reduce` and `tb_group` raise RuntimeError,
    over a memory channel `flush` and what signals by itself do.
    """

    __slots__ = ()

    memory: ClassVar[ChannelType] = ChannelType.memory
    port: ClassVar[ChannelType] = ChannelType.port
