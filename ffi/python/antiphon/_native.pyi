"""Types of the compiled half of the package; the classes document themselves."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, final, overload

from typing_extensions import Self, disjoint_base

from antiphon.language.internal.types import (
    BufferType,
    ChannelType,
    DataFormat,
    RankGroup,
    ReduceOperationType,
    ReplicationPolicy,
    SyncType,
)
from antiphon.language.utils import AlgoSpec

__all__ = [
    "BaseBuffer",
    "Buffer",
    "Channel",
    "Chunk",
    "ChunkProgram",
    "CollectiveProgram",
    "Guarded",
    "JSON",
    "LoopIterationContext",
    "MemoryChannel",
    "PortChannel",
    "Rank",
    "Ref",
    "Semaphore",
    "SwitchChannel",
    "SwitchChannelRankView",
    "ThreadBlockGroup",
    "begin_compile",
    "collective_chunks",
    "current_chunk_program",
    "end_compile",
    "get_program",
    "write_compiled",
]

class _Buffers(Protocol):
    """What a program asks of a collective."""

    @property
    def name(self) -> str: ...
    @property
    def inplace(self) -> bool: ...
    def init_buffers(self) -> Sequence[Mapping[BufferType, BaseBuffer]]: ...

@final
class Guarded:
    def __new__(cls, function: Callable[..., int], otherwise: Callable[[BaseException], int], last: int) -> Self: ...
    def __call__(self, *arguments: object) -> int: ...

_Sync = SyncType | Literal["none", "before", "after", "both"]
_Buffer = BufferType | Literal["input", "output", "scratch"]
_Reduce = ReduceOperationType | Literal["sum", "min", "max", "prod"]
_Kind = ChannelType | Literal["memory", "port", "sm", "proxy", "nvls"]
_Place = Ref | BufferType | str | None
_Policy = ReplicationPolicy | Literal["interleaved", "none"]

@disjoint_base
class CollectiveProgram:
    def __init__(
        self,
        name: str | None,
        collective: _Buffers,
        num_ranks: int,
        instances: int = 1,
        protocol: Literal["Simple", "LL"] | str = "Simple",
        instr_fusion: bool = True,
        auto_sync: bool = True,
        replication_policy: _Policy = ...,
        reuse_resources: bool = False,
        num_threads_per_block: int | float = 1024,
        use_double_scratch_buffer: bool = False,
        buffer_alignment: int | float = 16,
        min_message_size: int | float = 0,
        max_message_size: int | float = ...,
        *,
        compatible: bool = False,
    ) -> None: ...
    @classmethod
    def from_spec(cls, spec: AlgoSpec) -> Self: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...
    def to_json(self, indent: int | str | None = ..., **json_kwargs: Any) -> str: ...
    def check(self) -> bool: ...
    def write(self, path: str | PathLike[str], indent: Literal[2] | None = ...) -> None: ...
    def report(self) -> str: ...
    def validate_signal_wait_pairing(self) -> None: ...
    def post_process_operations(self) -> None: ...
    @property
    def name(self) -> str: ...
    @name.setter
    def name(self, name: str) -> None: ...
    @property
    def collective(self) -> Any: ...
    @property
    def num_ranks(self) -> int: ...
    @property
    def instances(self) -> int: ...
    @instances.setter
    def instances(self, instances: int) -> None: ...
    @property
    def protocol(self) -> str: ...
    @protocol.setter
    def protocol(self, protocol: Literal["Simple", "LL"] | str) -> None: ...
    @property
    def instr_fusion(self) -> bool: ...
    @property
    def auto_sync(self) -> bool: ...
    @auto_sync.setter
    def auto_sync(self, auto_sync: bool) -> None: ...
    @property
    def replication_policy(self) -> ReplicationPolicy: ...
    @replication_policy.setter
    def replication_policy(self, policy: _Policy) -> None: ...
    @property
    def reuse_resources(self) -> bool: ...
    @reuse_resources.setter
    def reuse_resources(self, reuse_resources: bool) -> None: ...
    @property
    def num_threads_per_block(self) -> int: ...
    @num_threads_per_block.setter
    def num_threads_per_block(self, num_threads_per_block: int) -> None: ...
    @property
    def use_double_scratch_buffer(self) -> bool: ...
    @use_double_scratch_buffer.setter
    def use_double_scratch_buffer(self, use_double_scratch_buffer: bool) -> None: ...
    @property
    def buffer_alignment(self) -> int: ...
    @buffer_alignment.setter
    def buffer_alignment(self, buffer_alignment: int) -> None: ...
    @property
    def min_message_size(self) -> int: ...
    @min_message_size.setter
    def min_message_size(self, size: int) -> None: ...
    @property
    def max_message_size(self) -> int: ...
    @max_message_size.setter
    def max_message_size(self, size: int) -> None: ...

@disjoint_base
class Chunk:
    @overload
    def __new__(cls, rank: int, type: _Buffer, index: int, size: int) -> Self: ...
    @overload
    def __new__(cls, rank: int, *, buffer: _Buffer, index: int, size: int) -> Self: ...
    @overload
    def __new__(cls, rank: int, index: int, size: int) -> Self: ...
    @property
    def rank(self) -> int: ...
    @property
    def type(self) -> BufferType: ...
    @property
    def buffer(self) -> BufferType: ...
    @property
    def index(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@disjoint_base
class BaseBuffer:
    @overload
    def __init__(self, rank: int, type: _Buffer, offset: int, size: int) -> None: ...
    @overload
    def __init__(self, rank: int, *, buffer_type: _Buffer, offset: int, size: int) -> None: ...
    @property
    def rank(self) -> int: ...
    @property
    def type(self) -> BufferType: ...
    @property
    def buffer_type(self) -> BufferType: ...
    @property
    def offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Chunk: ...

class Buffer(BaseBuffer):
    def __init__(self, rank: int, size: int) -> None: ...

@disjoint_base
class ThreadBlockGroup:
    def __new__(cls, tb_list: Sequence[int]) -> Self: ...
    @property
    def tb_list(self) -> list[int]: ...
    def get_internal_id(self, tb: int) -> int: ...
    def numtb(self) -> int: ...

@disjoint_base
class LoopIterationContext:
    def __new__(cls, unit: int | float, num_chunks: int | float) -> Self: ...
    @property
    def unit(self) -> int: ...
    @property
    def num_chunks(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...

@disjoint_base
class Rank:
    def __init__(self, rank: int) -> None: ...
    @property
    def rank(self) -> int: ...
    def get_input_buffer(self) -> BaseBuffer: ...
    def get_output_buffer(self) -> BaseBuffer: ...
    def copy(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def unpack_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def copy_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def reduce(
        self,
        src_chunk: Chunk,
        other_chunks: Sequence[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        dst_chunk: Chunk | None = None,
        reduce_op: _Reduce = ...,
        packet: bool = False,
        *,
        op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def reduce(
        self,
        dst: Chunk,
        src: Chunk,
        tb: int | _Reduce | None = None,
        tb_group: int | ThreadBlockGroup | None = None,
        /,
        *,
        reduce_op: _Reduce = ...,
        packet: bool = False,
        op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def reduce(
        self,
        dst: Chunk,
        src: Chunk,
        /,
        *,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        reduce_op: _Reduce = ...,
        packet: bool = False,
        op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def barrier(self, tb_list: Sequence[int], *, iter_context: LoopIterationContext | None = None) -> None: ...

@disjoint_base
class Semaphore:
    def __new__(
        cls, rank: int | Rank | None = None, initial_value: int | None = None, *, tag: object = None
    ) -> Self: ...
    @property
    def id(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def initial_value(self) -> int: ...
    def acquire(
        self, tb: int, data_sync: _Sync = ..., *, sync: _Sync = ..., iter_context: LoopIterationContext | None = None
    ) -> None: ...
    def release(
        self, tb: int, data_sync: _Sync = ..., *, sync: _Sync = ..., iter_context: LoopIterationContext | None = None
    ) -> None: ...

@disjoint_base
class MemoryChannel:
    def __init__(self, dst_rank: int, src_rank: int) -> None: ...
    @property
    def channel_id(self) -> int: ...
    @property
    def src_rank(self) -> int: ...
    @property
    def dst_rank(self) -> int: ...
    @property
    def channel_type(self) -> ChannelType: ...
    def signal(self, tb: int, data_sync: _Sync = ..., relaxed: bool = False) -> None: ...
    def wait(self, tb: int, data_sync: _Sync = ..., relaxed: bool = False) -> None: ...
    def put(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None: ...
    def get(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None: ...
    def put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None: ...
    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None: ...
    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: Sequence[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        local_dst_chunk: Chunk | None = None,
        reduce_op: _Reduce = ...,
    ) -> None: ...

@disjoint_base
class PortChannel:
    def __init__(self, dst_rank: int, src_rank: int) -> None: ...
    @property
    def channel_id(self) -> int: ...
    @property
    def src_rank(self) -> int: ...
    @property
    def dst_rank(self) -> int: ...
    @property
    def channel_type(self) -> ChannelType: ...
    def signal(self, tb: int, data_sync: _Sync = ...) -> None: ...
    def wait(self, tb: int, data_sync: _Sync = ...) -> None: ...
    def flush(self, tb: int, data_sync: _Sync = ...) -> None: ...
    def put(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None: ...
    def put_with_signal(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None: ...
    def put_with_signal_and_flush(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None: ...
    def put_packets(self, dst_chunk: Chunk, src_chunk: Chunk, tb: int) -> None: ...
    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
    ) -> None: ...

@disjoint_base
class Channel:
    def __new__(
        cls,
        dst_rank: int | Rank,
        src_rank: int | Rank,
        channel_type: ChannelType | Literal["memory", "port"] = ...,
        tag: int | str | None = None,
    ) -> Self: ...
    @property
    def channel_id(self) -> int: ...
    @property
    def src_rank(self) -> int: ...
    @property
    def dst_rank(self) -> int: ...
    @property
    def tag(self) -> int | str | None: ...
    @property
    def channel_type(self) -> ChannelType: ...
    def signal(
        self,
        tb: int,
        data_sync: _Sync = ...,
        relaxed: bool = False,
        *,
        sync: _Sync = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def wait(
        self,
        tb: int,
        data_sync: _Sync = ...,
        relaxed: bool = False,
        *,
        sync: _Sync = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def relaxedSignal(
        self,
        tb: int,
        data_sync: _Sync = ...,
        *,
        sync: _Sync = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def relaxedWait(
        self,
        tb: int,
        data_sync: _Sync = ...,
        *,
        sync: _Sync = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def flush(
        self,
        tb: int,
        data_sync: _Sync = ...,
        *,
        sync: _Sync = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def put(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def get(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def read_put_packets(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def put_with_signal(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def put_with_signal_and_flush(
        self,
        dst_chunk: Chunk,
        src_chunk: Chunk,
        tb: int,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def reduce(
        self,
        local_src_chunk: Chunk,
        remote_src_chunks: Sequence[Chunk],
        tb: int | None = None,
        tb_group: ThreadBlockGroup | None = None,
        local_dst_chunk: Chunk | None = None,
        reduce_op: _Reduce = ...,
        *,
        op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...

@disjoint_base
class SwitchChannel:
    def __new__(
        cls,
        rank_list: Sequence[int] | None = None,
        buffer_type: _Buffer | None = None,
        *,
        buffer: _Buffer | None = None,
        tag: object = None,
    ) -> Self: ...
    @property
    def rank_list(self) -> list[int]: ...
    @property
    def rank_group(self) -> RankGroup: ...
    @property
    def channel_ids(self) -> dict[int, int]: ...
    @property
    def buffer_type(self) -> BufferType: ...
    @property
    def channel_type(self) -> ChannelType: ...
    def at_rank(self, rank: int) -> SwitchChannelRankView: ...
    def reduce(
        self,
        rank: int,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int,
        reduce_op: _Reduce = ...,
    ) -> None: ...
    def broadcast(
        self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int
    ) -> None: ...
    def broadcast_packets(
        self, rank: int, src_chunk: Chunk, buffer_offset: int, size: int, tb: int
    ) -> None: ...
    def group_load_reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk | None = None,
        op: _Reduce = ...,
        tb: int = 0,
        *,
        reduce_op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def group_store(
        self,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int = 0,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def group_store(
        self, buffer_offset: int, size: int, tb: int = 0, *, iter_context: LoopIterationContext | None = None
    ) -> None: ...
    def group_reduce(
        self,
        index: int,
        size: int,
        *,
        op: _Reduce = ...,
        tb: int = 0,
        reduce_op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def group_broadcast(
        self, index: int, size: int, *, tb: int = 0, iter_context: LoopIterationContext | None = None
    ) -> None: ...

@disjoint_base
class SwitchChannelRankView:
    @property
    def rank(self) -> int: ...
    def reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk,
        tb: int,
        reduce_op: _Reduce = ...,
    ) -> None: ...
    def broadcast(self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int) -> None: ...
    def broadcast_packets(
        self, src_chunk: Chunk, buffer_offset: int, size: int, tb: int
    ) -> None: ...
    def group_load_reduce(
        self,
        buffer_offset: int,
        size: int,
        dst_chunk: Chunk | None = None,
        op: _Reduce = ...,
        tb: int = 0,
        *,
        reduce_op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def group_store(
        self,
        src_chunk: Chunk,
        buffer_offset: int,
        size: int,
        tb: int = 0,
        *,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    @overload
    def group_store(
        self, buffer_offset: int, size: int, tb: int = 0, *, iter_context: LoopIterationContext | None = None
    ) -> None: ...
    def group_reduce(
        self,
        index: int,
        size: int,
        *,
        op: _Reduce = ...,
        tb: int = 0,
        reduce_op: _Reduce = ...,
        iter_context: LoopIterationContext | None = None,
    ) -> None: ...
    def group_broadcast(
        self, index: int, size: int, *, tb: int = 0, iter_context: LoopIterationContext | None = None
    ) -> None: ...

@final
class Ref:
    # Indices and thread blocks that are left out are -1, which the compiled half does not tell `stubtest`.
    @property
    def rank(self) -> int: ...
    @property
    def buffer(self) -> BufferType | str: ...
    @property
    def index(self) -> int: ...
    @property
    def size(self) -> int: ...
    def split(self, num: int) -> list[Ref]: ...
    def group(self, other: Ref) -> Ref: ...
    def put(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> Ref: ...
    def put_packet(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        *rest: DataFormat | _Kind | _Place,
        chunk: _Place = None,
        src_format: DataFormat | None = None,
        chan_type: _Kind | None = None,
        temp_buffer: _Place = None,
        temp_buffer_index: int = ...,
    ) -> Ref: ...
    def packet_put(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> Ref: ...
    def get(
        self,
        src: int,
        buffer: _Place = None,
        index: int = ...,
        recvtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> Ref: ...
    def signal(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> None: ...
    def wait(
        self,
        src: int,
        buffer: _Place = None,
        index: int = ...,
        recvtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> None: ...
    def flush(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        chan_type: _Kind = ...,
        *,
        chunk: _Place = None,
    ) -> None: ...
    def copy(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        *,
        chunk: _Place = None,
    ) -> Ref: ...
    def copy_packet(
        self,
        dst: int,
        buffer: _Place = None,
        index: int = ...,
        sendtb: int = ...,
        *,
        chunk: _Place = None,
    ) -> Ref: ...
    def reduce(
        self,
        other: Ref | None = None,
        recvtb: int = ...,
        channel_type: _Kind = ...,
        *,
        other_chunkref: Ref | None = None,
    ) -> Ref: ...
    def reduce_packet(
        self, other: Ref | None = None, recvtb: int = ..., *, other_chunkref: Ref | None = None
    ) -> Ref: ...
    def group_load_reduce(
        self, others: Sequence[Ref], recvtb: int = ..., chan_type: _Kind = ...
    ) -> Ref: ...
    def group_store(
        self,
        dsts: Sequence[int],
        index: int = ...,
        buffer: _Place = None,
        sendtb: int = ...,
        chan_type: _Kind = ...,
    ) -> Ref: ...
    def get_origin_index(self, index: int = 0) -> int | list[int] | None: ...
    def get_origin_rank(self, index: int = 0) -> int | list[int] | None: ...
    def get_dst_index(self, index: int = 0) -> int | list[int] | None: ...
    def get_dst_rank(self, index: int = 0) -> int | list[int] | None: ...
    def print_chunk_info(self, index: int = 0) -> None: ...

@final
class ChunkProgram:
    def __new__(
        cls,
        name: str,
        collective: str,
        num_ranks: int,
        chunk_factor: int,
        inplace: bool,
        *,
        program_ranks: int,
        root: int = 0,
        ranks_per_node: int | None = None,
        instances: int = 1,
        protocol: str = "Simple",
        instr_fusion: bool = True,
        replication_policy: str = "duplicated",
        num_threads_per_block: int | float = ...,
        use_double_scratch_buffer: bool = False,
        min_message_size: int | float = ...,
        max_message_size: int | float = ...,
        links: Sequence[tuple[int, int]] | None = None,
        compatible: bool = False,
    ) -> Self: ...
    def enter(self) -> None: ...
    def leave(
        self,
        *_exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...
    def chunk(self, rank: int, buffer: BufferType | str, index: int, size: int) -> Ref | None: ...
    def barrier(self, rank: int, tb_list: Sequence[int]) -> None: ...
    def check(self) -> list[str]: ...
    def to_json(self, indent: int | str | None = ..., **json_kwargs: Any) -> str: ...
    def shown(self) -> str: ...

def current_chunk_program() -> ChunkProgram: ...
def JSON() -> str: ...
def get_program() -> CollectiveProgram: ...
def collective_chunks(name: str, num_ranks: int, chunk_factor: int) -> tuple[int, int]: ...
def begin_compile(note: str, compatible: bool) -> None: ...
def end_compile() -> None: ...
def write_compiled(path: str | PathLike[str], compact: bool) -> str: ...
