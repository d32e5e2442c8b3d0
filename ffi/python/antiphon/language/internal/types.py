"""The language's enums, and runs of chunks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from antiphon._native import Chunk

__all__ = [
    "BufferType",
    "ChannelType",
    "Chunk",
    "DataAccessType",
    "DataFormat",
    "Instruction",
    "RankGroup",
    "ReduceOperationType",
    "ReplicationPolicy",
    "SyncType",
]


class _Word(Enum):
    """A member whose text is what plans and programs write for it."""

    def __str__(self) -> str:
        return str(self.value)


class SyncType(_Word):
    """Where the threads of a block meet around an operation that synchronises with others.

    Before: everything that the block did earlier is done. After: nobody goes on before the operation is through.
    """

    none = "none"
    before = "before"
    after = "after"
    both = "both"

    def _bits(self) -> int:
        return list(SyncType).index(self)

    def __or__(self, other: object) -> SyncType:
        return list(SyncType)[self._bits() | other._bits()] if isinstance(other, SyncType) else NotImplemented

    def __and__(self, other: object) -> SyncType:
        return list(SyncType)[self._bits() & other._bits()] if isinstance(other, SyncType) else NotImplemented

    def __xor__(self, other: object) -> SyncType:
        return list(SyncType)[self._bits() ^ other._bits()] if isinstance(other, SyncType) else NotImplemented


class ReduceOperationType(_Word):
    """How elements are reduced."""

    sum = "sum"
    min = "min"
    max = "max"
    prod = "prod"


class BufferType(_Word):
    """The buffers of a rank, in this order; the values are their names in a plan."""

    input = "i"
    output = "o"
    scratch = "s"

    def __lt__(self, other: object) -> bool:
        return str(self) < str(other) if isinstance(other, BufferType) else NotImplemented


class ChannelType(_Word):
    """What a channel is made of; the values are the names in a plan. `sm`, `proxy` and `nvls` are first names of three."""

    memory = "memory"
    port = "port"
    switch = "switch"
    none = "none"
    sm = "memory"
    proxy = "port"
    nvls = "switch"


class DataFormat(_Word):
    """What a chunk holds that is put as packets, in an MSCCLPPProgram."""

    raw = "raw"
    packet = "packet"


class DataAccessType(_Word):
    """How an operation touches a chunk."""

    read = "r"
    write = "w"
    both = "b"


class ReplicationPolicy(_Word):
    """How chunks are shared among instances.

    Interleaved: every chunk is divided among them. None: not at all, for one instance. Duplicated, and packed, which is
    the same: every instance has chunks of its own; only in an MSCCLPPProgram.
    """

    interleaved = "interleaved"
    none = "none"
    duplicated = "duplicated"
    packed = "packed"


class Instruction(_Word):
    """The operations of a plan, by their names in it; of `start`, a block's beginning, plans say nothing."""

    start = "start"
    nop = "nop"
    barrier = "barrier"
    signal = "signal"
    relaxed_signal = "rlxsignal"
    wait = "wait"
    relaxed_wait = "rlxwait"
    flush = "flush"
    put = "put"
    put_with_signal = "pws"
    put_with_signal_and_flush = "pwsf"
    get = "get"
    copy = "copy"
    reduce = "re"
    reduce_send = "res"
    read_reduce = "rre"
    read_reduce_send = "rres"
    put_packet = "ppkt"
    read_put_packet = "rppkt"
    copy_packet = "cpkt"
    unpack_packet = "upkt"
    reduce_packet = "repkt"
    reduce_send_packet = "respkt"
    reduce_copy_packet = "recpkt"
    reduce_copy_send_packet = "recspkt"
    group_load_reduce = "glre"
    group_load_reduce_store = "glres"
    group_store = "gstore"
    group_store_packet = "gstorepkt"
    sem_acquire = "sem_acquire"
    sem_release = "sem_release"
    pipeline = "pipeline"
    # Named as the calls that make them, too.
    put_packets = "ppkt"
    read_put_packets = "rppkt"
    copy_packets = "cpkt"
    unpack_packets = "upkt"
    reduce_packets = "repkt"
    reduce_send_packets = "respkt"
    reduce_copy_packets = "recpkt"
    reduce_copy_send_packets = "recspkt"
    group_store_packets = "gstorepkt"


@dataclass(frozen=True)
class RankGroup:
    """The ranks that share something, as the members of a switch channel."""

    size: int
    """How many there are."""
    ranks: list[int]
    """The ranks."""
