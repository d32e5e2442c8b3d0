"""The language's enums, and runs of chunks."""

from __future__ import annotations

from enum import Enum

from antiphon._native import Chunk

__all__ = [
    "BufferType",
    "ChannelType",
    "Chunk",
    "DataAccessType",
    "DataFormat",
    "Instruction",
    "ReduceOperationType",
    "ReplicationPolicy",
    "SyncType",
]


class SyncType(Enum):
    """Where the threads of a block meet around an operation that synchronises with others.

    Before: everything that the block did earlier is done. After: nobody goes on before the operation is through.
    """

    none = 0
    before = 1
    after = 2
    both = 3

    def __or__(self, other: object) -> SyncType:
        return SyncType(self.value | other.value) if isinstance(other, SyncType) else NotImplemented

    def __and__(self, other: object) -> SyncType:
        return SyncType(self.value & other.value) if isinstance(other, SyncType) else NotImplemented

    def __xor__(self, other: object) -> SyncType:
        return SyncType(self.value ^ other.value) if isinstance(other, SyncType) else NotImplemented


class ReduceOperationType(Enum):
    """How elements are reduced."""

    sum = "sum"
    min = "min"
    max = "max"
    prod = "prod"


class BufferType(Enum):
    """The buffers of a rank; the values are their names in a plan."""

    input = "i"
    output = "o"
    scratch = "s"


class ChannelType(Enum):
    """What a channel is made of; the values are the names in a plan. `sm`, `proxy` and `nvls` are first names of three."""

    memory = "memory"
    port = "port"
    switch = "switch"
    none = "none"
    sm = "memory"
    proxy = "port"
    nvls = "switch"


class DataFormat(Enum):
    """What a chunk holds that is put as packets, in an MSCCLPPProgram."""

    raw = "raw"
    packet = "packet"


class DataAccessType(Enum):
    """How an operation touches a chunk."""

    read = "r"
    write = "w"
    both = "b"


class ReplicationPolicy(Enum):
    """How chunks are shared among instances.

    Interleaved: every chunk is divided among them. None: not at all, for one instance. Duplicated, and packed, which is
    the same: every instance has chunks of its own; only in an MSCCLPPProgram.
    """

    interleaved = "interleaved"
    none = "none"
    duplicated = "duplicated"
    packed = "packed"


class Instruction(Enum):
    """The operations of a plan, by their names in it."""

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
    put_packets = "ppkt"
    read_put_packets = "rppkt"
    copy_packets = "cpkt"
    unpack_packets = "upkt"
    reduce_packets = "repkt"
    reduce_send_packets = "respkt"
    reduce_copy_packets = "recpkt"
    reduce_copy_send_packets = "recspkt"
    group_load_reduce = "glre"
    group_load_reduce_store = "glres"
    group_store = "gstore"
    group_store_packets = "gstorepkt"
    sem_acquire = "sem_acquire"
    sem_release = "sem_release"
    pipeline = "pipeline"

    def __str__(self) -> str:
        return str(self.value)
