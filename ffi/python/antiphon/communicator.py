"""Ranks that make calls together, and the collectives as methods."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

from antiphon import _abi
from antiphon._arguments import (
    LONGEST_NAME, common, config, device_queue, element_bytes, encoded_name, extents, item_bytes, number, on_device_of, queue, reduced, signed,
    unequal
)  # fmt: skip
from antiphon._buffers import NAMES, Span, device_span, name_of, span
from antiphon._groups import Using, group, keep
from antiphon._library import Handle, Owned, check, failure, library, obtained
from antiphon._memory import Memory
from antiphon._registry import explanation
from antiphon._streams import Stream, adopted, synchronize
from antiphon.errors import AntiphonError, InvalidArgumentError, UnsupportedError

__all__ = ["Communicator", "Memory", "Op", "Stream", "UniqueId", "default", "local_rank", "set_default"]

_MOST_IN_PROCESS = 1 << 16
"""The most ranks for which room is made before the library is asked; it refuses more."""


def local_rank() -> int:
    """This process's number among the ranks of its host, as its launcher or ANTIPHON_LOCAL_RANK says it; if only the number among
    all ranks is known, that one; 0 if nothing started the process as a rank. Modulo the number of devices, it is the device that
    communicators use whose device has no number, as in "cuda", unless the program has made another one current."""
    rank = ctypes.c_uint32()
    check(library().antiphon_local_rank(rank))
    return rank.value


class Op(IntEnum):
    """Reductions."""

    sum = 0
    """The sum."""
    prod = 1
    """The product."""
    min = 2
    """The least."""
    max = 3
    """The greatest."""
    avg = 4
    """The sum divided by the number of ranks."""


class UniqueId:
    """What the ranks of a group agree on before they meet. It holds a secret: whoever has it can join."""

    def __init__(self, raw: bytes) -> None:
        if not 0 < len(raw) <= 128:
            raise InvalidArgumentError(f"cannot read an id: saw {len(raw)} bytes, allowed 1 to 128")
        self._raw = raw

    @classmethod
    def create(cls) -> UniqueId:
        """Makes one. From now on this process listens for the ranks, and must run until all have joined; it may be that of any
        rank, or of none."""
        id = _abi.UniqueId()
        check(library().antiphon_unique_id_create(id))
        return cls(id.bytes)

    def __bytes__(self) -> bytes:
        """The bytes that the program carries to the other ranks."""
        return self._raw

    def __repr__(self) -> str:
        return "UniqueId(...)"


def _synchronize(communicator: weakref.ref[Communicator], native: int) -> None:
    on = communicator()
    if on is not None:
        synchronize(on._open(), native)


class Communicator(Handle):
    """One rank's end of a group of ranks that make calls together.

    All ranks make the same calls in the same order, with equal counts, types and reductions; ranks that do not get a
    MismatchError. Buffers are NumPy arrays, PyTorch tensors on the CPU, or anything with the buffer protocol, DLPack or
    `__array_interface__`; receive buffers must be writable. A call returns when it is complete on this rank, and other threads
    run meanwhile; with a `stream` it may return earlier, and runs in the stream's order.
    """

    _destroyed_by = "antiphon_communicator_destroy"

    def __init__(self, value: int, on_device: bool = False) -> None:
        super().__init__(value)
        lib = library()
        self._on_device = on_device
        number = ctypes.c_uint32()
        check(lib.antiphon_communicator_rank(value, number))
        self.rank: int = number.value
        """This rank."""
        check(lib.antiphon_communicator_world(value, number))
        self.world: int = number.value
        """Number of ranks."""
        called, size = ctypes.create_string_buffer(LONGEST_NAME + 1), ctypes.c_uint64()
        check(lib.antiphon_communicator_name(value, called, len(called), size))
        self.name: str | None = called.value.decode() or None
        """What errors and the log call it, if it has a name."""
        # It is looked up only once: attributes of a ctypes library are slow.
        self._all_reduce = lib.antiphon_all_reduce
        # A weak reference, since an object that refers to itself is closed late.
        own = weakref.ref(self)
        self._span = device_span if on_device else span
        self._queue = partial(device_queue, partial(_synchronize, own)) if on_device else queue

    @classmethod
    def from_environment(
        cls,
        *,
        timeout: float | None = None,
        verification: bool = True,
        process_access: bool = True,
        wire: str | None = None,
        interface: str | None = None,
        reproducible: bool | None = None,
        device: str | None = None,
        tags: Iterable[str] | None = None,
        block_threads: int | None = None,
        kernels: str | None = None,
        multicast: bool = True,
        legacy_ipc: bool | None = None,
        name: str | None = None,
    ) -> Communicator:
        """Joins the group whose ranks a launcher started (torchrun, mpirun, srun), or that ANTIPHON_RANK, ANTIPHON_WORLD
        and ANTIPHON_COMM_ID describe; ANTIPHON_WORLD=1 alone is a group of one rank. It can be called once per process.

        `timeout` is how many seconds a call may make no progress before it fails, `math.inf` for ever; unless given,
        ANTIPHON_CALL_TIMEOUT says it, or else it is a minute. `verification` says whether plans are verified when they are
        loaded, `process_access` whether peers may access ordinary memory through the kernel; `wire` names the wire between
        hosts, which ANTIPHON_WIRE says unless it is given, `interface` its network interface. With `reproducible`
        sums keep one order, so that a tensor has the same bits however it is put into buckets; unless given,
        ANTIPHON_REPRODUCIBLE says it. `device` says where the buffers are: "host", "cuda:1", "rocm:0"; a name without a number
        is the device that the program has made current, else that of this rank's `local_rank`; unless given, ANTIPHON_DEVICE says it, or else it is the host. Registered and installed plans and
        code serve calls only if they have all `tags`; unless given, those that ANTIPHON_TAGS lists, separated by commas.
        On GPUs `block_threads` is how many threads each thread block has, 1 to 512, as many as the plan says unless given;
        `kernels` says what plans become: "generated", "interpreted" or "auto"; unless given, ANTIPHON_KERNELS says it, or else
        it is "auto". Without `multicast` switch channels reach each member by itself; with `legacy_ipc` other processes map
        memory of cudaMalloc rather than have it copied, which ANTIPHON_LEGACY_IPC says unless it is given.
        `name` is what errors and lines of the log call the communicator: 1 to 128 bytes of UTF-8 without control characters.
        `wire`, `reproducible` and `tags` must be the same on all ranks.
        """
        said = config(
            timeout, verification, process_access, wire, interface, reproducible, device, tags, block_threads, kernels, multicast, legacy_ipc, name
        )  # fmt: skip
        form = library().antiphon_communicator_create_from_environment
        return cls._formed(device, lambda out: form(said, out))

    @classmethod
    def from_id(
        cls,
        id: UniqueId,
        rank: int,
        world: int,
        *,
        timeout: float | None = None,
        verification: bool = True,
        process_access: bool = True,
        wire: str | None = None,
        interface: str | None = None,
        reproducible: bool | None = None,
        device: str | None = None,
        tags: Iterable[str] | None = None,
        block_threads: int | None = None,
        kernels: str | None = None,
        multicast: bool = True,
        legacy_ipc: bool | None = None,
        name: str | None = None,
    ) -> Communicator:
        """Joins a group as `rank` of `world`: returns when all ranks, which pass the same id, are there."""
        said = config(
            timeout, verification, process_access, wire, interface, reproducible, device, tags, block_threads, kernels, multicast, legacy_ipc, name
        )  # fmt: skip
        rank, world = number("rank", rank), number("world", world)
        raw, form = _abi.UniqueId(bytes(id)), library().antiphon_communicator_create
        return cls._formed(device, lambda out: form(raw, rank, world, said, out))

    @classmethod
    def from_place(
        cls,
        place: str,
        rank: int,
        world: int,
        *,
        timeout: float | None = None,
        verification: bool = True,
        process_access: bool = True,
        wire: str | None = None,
        interface: str | None = None,
        reproducible: bool | None = None,
        device: str | None = None,
        tags: Iterable[str] | None = None,
        block_threads: int | None = None,
        kernels: str | None = None,
        multicast: bool = True,
        legacy_ipc: bool | None = None,
        name: str | None = None,
    ) -> Communicator:
        """Joins a group as `rank` of `world` at a place, written as in ANTIPHON_COMM_ID: "host:port", "interface:ip:port",
        "file:/path". Over TCP ranks prove that they know a secret, which ANTIPHON_SECRET or ANTIPHON_SECRET_FILE gives."""
        said = config(
            timeout, verification, process_access, wire, interface, reproducible, device, tags, block_threads, kernels, multicast, legacy_ipc, name
        )  # fmt: skip
        rank, world = number("rank", rank), number("world", world)
        if "\0" in place:
            raise InvalidArgumentError(f"cannot meet at {place!r}: allowed texts without a zero")
        at, form = place.encode(), library().antiphon_communicator_create_at
        return cls._formed(device, lambda out: form(at, rank, world, said, out))

    @classmethod
    def _formed(cls, device: str | None, form: Callable[[Any], int]) -> Communicator:
        on_device = on_device_of(device)
        return cls(obtained(form, Communicator._destroyed_by), on_device)

    @classmethod
    def in_process(
        cls,
        world: int,
        *,
        timeout: float | None = None,
        verification: bool = True,
        process_access: bool = True,
        reproducible: bool | None = None,
        device: str | None = None,
        tags: Iterable[str] | None = None,
        block_threads: int | None = None,
        kernels: str | None = None,
        multicast: bool = True,
        legacy_ipc: bool | None = None,
        name: str | None = None,
    ) -> list[Communicator]:
        """The ranks of a group that all live in this process, each for a thread of its own. `device` may name one for each
        rank, separated by commas; with "cuda" they take turns on all there are."""
        if not 0 < world <= _MOST_IN_PROCESS:
            raise InvalidArgumentError(f"cannot make {world} ranks: allowed 1 to {_MOST_IN_PROCESS}")
        made = (ctypes.c_void_p * world)()
        said = config(
            timeout, verification, process_access, None, None, reproducible, device, tags, block_threads, kernels, multicast, legacy_ipc, name
        )  # fmt: skip
        check(library().antiphon_communicator_create_in_process(world, said, made))
        return [cls(value or 0, on_device_of(device)) for value in made]

    def explain(
        self, collective: str, message_size: int, dtype: Any = "float32", op: Op = Op.sum, *, in_place: bool = False, root: int = 0
    ) -> str:
        """Says in lines for people what would serve a call by name, why, and what else was considered. No call is made, but a
        selector is asked. `message_size` is the size of the larger buffer, in bytes."""
        kind = NAMES.get(name_of(dtype))
        if kind is None:
            raise UnsupportedError(f"cannot explain a call with elements of type {dtype}: allowed {', '.join(NAMES)}")
        size = number("message_size", message_size, 64)
        asked = _abi.Question(ctypes.sizeof(_abi.Question), collective.encode(), size, kind, op, in_place)
        asked.root = number("root", root)
        return explanation(self._open(), asked)

    def node(self, rank: int) -> int:
        """The number of the node that a rank is on: ranks with equal numbers map each other's memory."""
        node = ctypes.c_uint32()
        check(library().antiphon_communicator_node(self._open(), number("rank", rank), node))
        return node.value

    def ranks_of_node(self, node: int) -> int:
        """How many ranks are on a node."""
        return sum(self.node(rank) == node for rank in range(self.world))

    def split(self, color: int | None, key: int = 0, *, name: str | None = None) -> Communicator | None:
        """Divides the ranks into groups: ranks of one color form a new one, ordered by key, which may be negative, then by
        rank. Every rank calls it; one without a color joins none, and gets None. Unless a `name` is given, the new one of color 2
        is called "dp/2" if this one is called "dp"."""
        if color is not None and not 0 <= color < 1 << 31:
            raise InvalidArgumentError(f"cannot split by color {color}: allowed 0 to {(1 << 31) - 1}, and None")
        own, signed_key, split = self._open(), signed("key", key), library().antiphon_communicator_split_as
        colored, called = -1 if color is None else number("color", color), encoded_name(name)
        value = obtained(lambda out: split(own, colored, signed_key, called, out), Communicator._destroyed_by)
        return Communicator(value, self._on_device) if value else None

    def subset(self, ranks: Iterable[int], *, name: str | None = None) -> Communicator:
        """The communicator of some of the ranks, in this order: each of them calls it with the same list, and the others have no
        part in it. It works, too, if this communicator is broken, as long as the listed ranks are alive; `lost` tells which are
        not. If a listed rank is lost meanwhile, it raises PeerLostError, or AbortedError where another rank found that out
        first. Unless a `name` is given, the new one has this one's."""
        listed = [number("rank", rank) for rank in ranks]
        own, subset, called = self._open(), library().antiphon_communicator_subset_as, encoded_name(name)
        some = (ctypes.c_uint32 * len(listed))(*listed)
        value = obtained(lambda out: subset(own, some, len(listed), called, out), Communicator._destroyed_by)
        return Communicator(value, self._on_device)

    def lost(self) -> list[int]:
        """The ranks that this rank knows to be gone, in order: they have died, have left this communicator, or cannot be reached
        any more. It tells them also when the communicator is broken, and of those that went later than what broke it; ranks may
        come to know of a loss at different times. Does not wait."""
        count, ranks = ctypes.c_uint32(), (ctypes.c_uint32 * self.world)()
        check(library().antiphon_communicator_lost(self._open(), ranks, self.world, count))
        return ranks[: count.value]

    def allocate(self, size: int) -> Memory:
        """Zeroed memory of `size` bytes that the ranks of this machine map."""
        made = ctypes.c_void_p()
        check(library().antiphon_memory_allocate(self._open(), number("size", size, 64), made))
        return Memory(made.value or 0, size, self._on_device)

    def stream(self) -> Stream:
        """A new queue of calls."""
        made = ctypes.c_void_p()
        check(library().antiphon_stream_create(self._open(), made))
        return Stream(made.value or 0)

    def adopt(self, native: int) -> Stream:
        """A stream of the application, a cudaStream_t or hipStream_t as a number, on the communicator's device: calls on it
        come in order with all else in that stream, and buffers must outlive the calls. Closing it leaves the application's
        stream as it is."""
        return adopted(self._open(), native)

    def abort(self, reason: str = "no reason given") -> None:
        """Ends every wait of every rank; later calls raise AbortedError with the reason."""
        check(library().antiphon_communicator_abort(self._open(), reason.replace("\0", " ").encode()))

    def error(self) -> AntiphonError | None:
        """What broke the communicator; None while it is whole. Does not wait."""
        result = ctypes.c_int32()
        check(library().antiphon_communicator_async_error(self._open(), result))
        return failure(result.value) if result.value else None

    def barrier(self) -> None:
        """Returns once all ranks have called it."""
        check(library().antiphon_barrier(self._open()))

    def all_reduce(self, send: Any, receive: Any = None, op: Op = Op.sum, *, stream: Stream | None = None) -> Any:
        """Gives every rank the reduction of all ranks' elements; in place if `receive` is not given. Returns the receive
        buffer."""
        sent = self._span(send, receive is None)
        received = sent if receive is None else self._span(receive, True)
        if sent.bytes != received.bytes:
            raise unequal("all_reduce", sent, received, 1, 1)
        dtype, count = reduced(sent, received)
        line = self._queue(stream, sent, received)
        try:
            result = self._all_reduce(self._handle, sent.address, received.address, count, dtype, +op, line)
        finally:
            keep(stream, sent, received)
        if result:
            # This is not checked before the call, where it would cost time: the library also refuses a closed one.
            self._open()
            raise failure(result)
        return send if receive is None else receive

    def all_gather(self, send: Any, receive: Any, *, stream: Stream | None = None) -> Any:
        """Gives every rank the elements of all, in rank order. A rank that passes None for `send` calls in place: it sends its
        block of `receive`. Returns the receive buffer."""
        received = self._span(receive, True)
        sent = self._block(received) if send is None else self._span(send, False)
        if received.bytes != sent.bytes * self.world:
            raise unequal("all_gather", sent, received, 1, self.world)
        self._move("antiphon_all_gather", sent, received, sent.bytes, stream)
        return receive

    def reduce_scatter(self, send: Any, receive: Any = None, op: Op = Op.sum, *, stream: Stream | None = None) -> Any:
        """Gives rank r the reduction of all ranks' block r. Without `receive` a rank calls in place: it receives into its block
        of `send`. Returns the receive buffer."""
        sent = self._span(send, receive is None)
        received = self._block(sent) if receive is None else self._span(receive, True)
        if sent.bytes != received.bytes * self.world:
            raise unequal("reduce_scatter", sent, received, self.world, 1)
        dtype, count = reduced(received, sent)
        line, by = self._queue(stream, sent, received), library().antiphon_reduce_scatter
        with Using(stream, sent, received):
            check(by(self._open(), sent.address, received.address, count, dtype, +op, line))
        return send if receive is None else receive

    def all_to_all(self, send: Any, receive: Any = None, *, stream: Stream | None = None) -> Any:
        """Exchanges blocks: block r of rank s becomes block s of rank r. All ranks call in place, without `receive`, or none
        does. Returns the receive buffer."""
        sent = self._span(send, receive is None)
        received = sent if receive is None else self._span(receive, True)
        if sent.bytes != received.bytes:
            raise unequal("all_to_all", sent, received, 1, 1)
        self._move("antiphon_all_to_all", sent, received, self._block(sent).bytes, stream)
        return send if receive is None else receive

    def all_to_all_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        receive: Any,
        receive_counts: Sequence[int],
        *,
        send_offsets: Sequence[int] | None = None,
        receive_offsets: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> Any:
        """Exchanges blocks whose lengths may differ: `send_counts[r]` elements go to rank r, `receive_counts[r]` come from it.
        Blocks are one behind the other, unless offsets, in elements, are given. The call is out of place. Returns the receive
        buffer."""
        sent, received = self._span(send, False), self._span(receive, True)
        dtype, each = common(sent, received)
        size, arrays = item_bytes(received), []
        for which, counts, offsets, whole in (
            ("send", send_counts, send_offsets, sent),
            ("receive", receive_counts, receive_offsets, received),
        ):
            arrays += extents(which, counts, offsets, whole.bytes // size, self.world, each)
        line, by = self._queue(stream, sent, received), library().antiphon_all_to_all_v
        with Using(stream, sent, received):
            check(by(self._open(), sent.address, arrays[0], arrays[1], received.address, arrays[2], arrays[3], dtype, line))
        return receive

    def all_gather_v(
        self,
        send: Any,
        receive: Any,
        receive_counts: Sequence[int],
        *,
        receive_offsets: Sequence[int] | None = None,
        stream: Stream | None = None,
    ) -> Any:
        """Gives every rank the elements of all, where ranks may send different numbers of elements: `receive_counts[r]` come
        from rank r, and this rank's are all of `send`. Blocks of `receive` are one behind the other, unless offsets, in
        elements, are given. A rank that passes None for `send` calls in place: it sends its block of `receive`. Returns the
        receive buffer."""
        received = self._span(receive, True)
        sent = received if send is None else self._span(send, False)
        dtype, each = common(sent, received)
        size = item_bytes(received)
        counts, offsets = extents("receive", receive_counts, receive_offsets, received.bytes // size, self.world, each)
        count, item = counts[self.rank], element_bytes(dtype)
        if send is None:
            # The offset of an empty block may be anywhere; only an address inside the buffer is in place.
            sent = received._replace(address=received.address + (offsets[self.rank] * item if count else 0))
        elif sent.bytes != count * item:
            raise InvalidArgumentError(
                f"cannot call all_gather_v with a send buffer of {sent.bytes // size} elements: allowed what receive_counts says "
                f"of this rank, {receive_counts[self.rank]}"
            )
        line, by = self._queue(stream, sent, received), library().antiphon_all_gather_v
        with Using(stream, sent, received):
            check(by(self._open(), sent.address, count, received.address, counts, offsets, dtype, line))
        return receive

    def broadcast(self, buffer: Any, root: int = 0, *, stream: Stream | None = None) -> Any:
        """Gives every rank the root's buffer. Returns the buffer."""
        own = self._span(buffer, root != self.rank)
        self._move("antiphon_broadcast", own, own, own.bytes, stream, number("root", root))
        return buffer

    def reduce(
        self, send: Any, receive: Any = None, op: Op = Op.sum, root: int = 0, *, stream: Stream | None = None
    ) -> Any:
        """Gives the root the reduction of all ranks' elements, in place if it gives no `receive`; the other ranks' `receive`
        does not count. Returns the root's receive buffer, None on others."""
        at_root = root == self.rank
        sent = self._span(send, at_root and receive is None)
        received = sent if receive is None else self._span(receive, True)
        if at_root and sent.bytes != received.bytes:
            raise unequal("reduce", sent, received, 1, 1)
        dtype, count = reduced(sent, received if at_root else sent)
        to = received.address if at_root else None
        line, by = self._queue(stream, sent, received), library().antiphon_reduce
        with Using(stream, sent, received):
            check(by(self._open(), sent.address, to, count, dtype, +op, number("root", root), line))
        return (send if receive is None else receive) if at_root else None

    def gather(self, send: Any, receive: Any = None, root: int = 0, *, stream: Stream | None = None) -> Any:
        """Gives the root the elements of all, in rank order; the others need no receive buffer. If the root's `send` is None,
        it is the root's block of `receive`. Returns the root's receive buffer, None on others."""
        if root != self.rank:
            sent = self._span(send, False)
            self._move("antiphon_gather", sent, None, sent.bytes, stream, number("root", root))
            return None
        received = self._span(receive, True)
        sent = self._block(received) if send is None else self._span(send, False)
        if received.bytes != sent.bytes * self.world:
            raise unequal("gather", sent, received, 1, self.world)
        self._move("antiphon_gather", sent, received, sent.bytes, stream, number("root", root))
        return receive

    def scatter(self, send: Any, receive: Any = None, root: int = 0, *, stream: Stream | None = None) -> Any:
        """Gives rank r block r of the root's elements; the others need no send buffer. If the root's `receive` is None, it is
        the root's block of `send`. Returns the receive buffer."""
        if root != self.rank:
            received = self._span(receive, True)
            self._move("antiphon_scatter", None, received, received.bytes, stream, number("root", root))
            return receive
        sent = self._span(send, False)
        received = self._block(sent) if receive is None else self._span(receive, True)
        if sent.bytes != received.bytes * self.world:
            raise unequal("scatter", sent, received, self.world, 1)
        self._move("antiphon_scatter", sent, received, received.bytes, stream, number("root", root))
        return send if receive is None else receive

    def send(self, buffer: Any, peer: int, *, stream: Stream | None = None) -> None:
        """Sends the buffer to a peer, which calls `receive` with one of the same size and type. Without a stream it returns
        when the peer has received, so ranks that send to each other must do it by `send_receive`, or in a `group`. Both ranks
        must make the transfers between them in the same order."""
        own = self._span(buffer, False)
        dtype, _ = common(own, own)
        count = own.bytes // element_bytes(dtype)
        line = self._queue(stream, own)
        with Using(stream, own):
            check(library().antiphon_send(self._open(), own.address, count, dtype, number("peer", peer), line))

    def receive(self, buffer: Any, peer: int, *, stream: Stream | None = None) -> Any:
        """Receives into the buffer what a peer sends. Returns the buffer."""
        own = self._span(buffer, True)
        dtype, _ = common(own, own)
        count = own.bytes // element_bytes(dtype)
        line = self._queue(stream, own)
        with Using(stream, own):
            check(library().antiphon_receive(self._open(), own.address, count, dtype, number("peer", peer), line))
        return buffer

    def send_receive(self, send: Any, dest: int, receive: Any, source: int, *, stream: Stream | None = None) -> Any:
        """Sends a buffer to rank `dest` while it receives into another from rank `source`, as in a ring or between neighbours;
        it cannot deadlock, whatever the order of ranks. `dest` may be this rank itself if `source` is too. For more transfers
        than one of each use `antiphon.group()`. Returns the receive buffer."""
        with group():
            self.send(send, dest, stream=stream)
            return self.receive(receive, source, stream=stream)

    def _block(self, whole: Span) -> Span:
        """This rank's block of a buffer that has one for each rank."""
        size, rest = divmod(whole.bytes, self.world)
        if rest or size % item_bytes(whole):
            raise InvalidArgumentError(
                f"cannot divide {whole.bytes} bytes among {self.world} ranks: allowed equally many elements for each"
            )
        return whole._replace(address=whole.address + self.rank * size, bytes=size)

    def _move(
        self, function: str, sent: Span | None, received: Span | None, block: int, stream: Stream | None, *root: int
    ) -> None:
        """Calls a function that reduces nothing, for blocks of so many bytes."""
        used = [part for part in (sent, received) if part]
        dtype, _ = common(used[0], used[-1])
        line = self._queue(stream, sent, received)
        from_, to = (part.address if part else None for part in (sent, received))
        with Using(stream, sent, received):
            check(getattr(library(), function)(self._open(), from_, to, block // element_bytes(dtype), dtype, *root, line))


_default: Communicator | None = None
_default_lock = threading.Lock()


def default() -> Communicator:
    """The communicator that the functions of the package use: that of the environment, made at the first call."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Communicator.from_environment()
    return _default


def set_default(communicator: Communicator | None) -> None:
    """Makes the functions of the package use another communicator."""
    global _default
    _default = communicator
