"""Algorithms that are functions of Python: like plans and built-in algorithms, they serve calls by name of this process."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from antiphon import _abi, _registry
from antiphon._library import Owned, check, library
from antiphon._arguments import element_bytes
from antiphon.communicator import Op
from antiphon.errors import InvalidArgumentError
from antiphon.executor import Lane, LoadedPlan, Loader
from antiphon.plan import Constraint, DataType, ExecutionPlan, PlanHandle

__all__ = ["CodeCall", "View", "register_code", "unregister_code"]


_T = TypeVar("_T")


class View:
    """The elements of a call's buffer, while the call lasts. On the host NumPy takes it as an array, `numpy.asarray(view)`; on
    a GPU whatever takes `__cuda_array_interface__` does, such as PyTorch: `torch.as_tensor(view,
    device=f"cuda:{call.device}")`; the GPU need not be current. On a GPU `call.send` claims to be writable, since PyTorch takes
    nothing else, but must not be written."""

    def __init__(self, address: int, size: int, dtype: DataType, writable: bool, on_device: bool = False) -> None:
        self.address = address
        """Where it begins."""
        self.nbytes = size
        """Bytes."""
        self.dtype = dtype
        """The type of its elements."""
        self._writable = writable
        self._on_device = on_device
        self._open = True

    def __len__(self) -> int:
        """Number of elements."""
        return self.nbytes // element_bytes(self.dtype._number())

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The view for NumPy, if it is on the host; elements of a type that NumPy lacks appear as whole numbers with the same
        bits."""
        return self._interface(False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The same if it is on a GPU. It names no stream: what is done with it belongs in the call's stream."""
        return self._interface(True)

    def _interface(self, on_device: bool) -> dict[str, Any]:
        if on_device is not self._on_device:
            raise AttributeError(f"a view of {'a GPU' if self._on_device else 'the host'} has no such interface")
        if not self._open:
            raise InvalidArgumentError("cannot use a view: its call is over; copy what is to stay")
        kind = _KINDS.get(self.dtype, f"{'<' if element_bytes(self.dtype._number()) > 1 else '|'}u")
        typestr = f"{kind}{element_bytes(self.dtype._number())}"
        # For an empty array the interface for GPUs wants the address 0.
        address = 0 if on_device and not self.nbytes else self.address
        # PyTorch takes no array on a GPU that says it is read-only.
        read_only = not (self._writable or on_device)
        return {"version": 3, "shape": (len(self),), "typestr": typestr, "data": (address, read_only)}


_KINDS = {
    DataType.float16: "<f",
    DataType.float32: "<f",
    DataType.float64: "<f",
    DataType.int8: "|i",
    DataType.int32: "<i",
    DataType.int64: "<i",
}
"""The names in `__array_interface__` of types that are not passed as unsigned whole numbers."""


def _blocks(counts: int | None, offsets: int | None, world: int) -> list[slice] | None:
    """Blocks of a buffer, in elements, by rank."""
    if not counts or not offsets:
        return None
    lengths, starts = ((ctypes.c_uint64 * world).from_address(at) for at in (counts, offsets))
    return [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]


class CodeCall:
    """A call that code serves, on one rank. The code may use it until it returns."""

    def __init__(self, call: _abi.CodeCall, name: str) -> None:
        dtype, on_device = DataType._of_number(call.dtype), call.device >= 0
        self.send = View(call.send_buffer or 0, call.send_bytes, dtype, False, on_device)
        """The send buffer, which must not be written; in a scatter, it has no elements except at the root."""
        self.receive = View(call.receive_buffer or 0, call.receive_bytes, dtype, True, on_device)
        """The receive buffer; in a reduce and a gather, it has no elements except at the root."""
        self.dtype = dtype
        """The type of the elements."""
        self.send_blocks = _blocks(call.send_counts, call.send_offsets, call.world)
        """In an alltoallv, for each rank, the part of `send` that goes to it; None for other collectives. (In an allgatherv,
        all of `send` goes to every rank.)"""
        self.receive_blocks = _blocks(call.receive_counts, call.receive_offsets, call.world)
        """In an alltoallv and an allgatherv, for each rank, the part of `receive` for what comes from it; None for other
        collectives. Nobody has checked that sender and receiver agree."""
        self.op = Op(call.op) if call.op >= 0 else None
        """The reduction; None where nothing is reduced."""
        self.in_place = bool(call.in_place)
        """Whether input and output are the same memory, by the collective's convention. Always False for collectives with a
        root."""
        self.root: int = call.root
        """The root, for collectives that have one."""
        self.rank: int = call.rank
        """This rank."""
        self.world: int = call.world
        """Number of ranks."""
        self.device: int | None = call.device if on_device else None
        """The number of the rank's GPU; None on the host."""
        self.stream: int | None = (call.native_stream or 0) if on_device else None
        """On a GPU the stream that the call is on, as the driver knows it (a `cudaStream_t`; 0 is the default one): the
        function must put all that it does with the buffers there. None on the host, where all that comes before the call is
        complete."""
        self.recorded = bool(call.recorded)
        """Whether that stream is being recorded into a graph, so that nobody can wait for it."""
        self._name = name
        queue = Lane(Owned(call.stream), self.stream) if self.stream is not None else None
        self._executor = Owned(call.executor)
        self._loader: Loader | None = Loader(self._executor, queue)
        self._deciding = threading.Lock()
        self._inside: set[object] = set()
        """The uses of the call that load or run plans at the moment, an object for each."""

    def load(self, plan: ExecutionPlan | PlanHandle) -> LoadedPlan:
        """A plan, ready to run on the call's ranks. It is verified once per communicator."""
        return self._use(lambda loader: loader.load(plan.plan if isinstance(plan, PlanHandle) else plan))

    def load_name(self, name: str) -> LoadedPlan:
        """The plan of a built-in algorithm, such as "allreduce_ring", for all ranks of one node; in place if the call is, and
        with the call's root."""
        return self._use(lambda loader: loader.load_name(name, self.in_place, self.root))

    def run(self, plan: ExecutionPlan | PlanHandle | LoadedPlan, send: Any = None, receive: Any = None) -> None:
        """Runs a plan over two buffers, those of the call unless others are given, with the call's reduction. On the host it is
        complete on return; on a GPU it is put into the call's stream, and buffers other than the call's must live until the
        stream has come past it. All ranks run plans of the same content, with equal sizes and types."""
        if isinstance(receive, View) and not receive._writable:
            raise InvalidArgumentError("cannot run a plan: saw the send buffer of a call to receive in, allowed others; pass call.receive")
        sent, received = self.send if send is None else send, self.receive if receive is None else receive
        loaded = plan if isinstance(plan, LoadedPlan) else self.load(plan)
        self._use(lambda loader: loader.run(loaded, sent, received, self.op, None))

    def _use(self, what: Callable[[Loader], _T]) -> _T:
        """Calls `what` with the loader and returns its result. It is not a context, since an interrupt may leave one without
        ending it."""
        own = object()
        try:
            with self._deciding:
                loader = self._loader
                if loader is None:
                    raise InvalidArgumentError(f"cannot use the call that {self._name} served: it is over")
                self._inside.add(own)
            return what(loader)
        finally:
            self._inside.discard(own)

    def _serve(self, run: Callable[[CodeCall], object]) -> None:
        """Returns, whatever interrupts it, only when the code has returned and no thread uses the executor, which the library
        then takes back."""
        begun, failed = False, None
        while True:
            try:
                if not begun:
                    begun = True
                    run(self)
                self._end(failed)
                break
            except BaseException as raised:
                failed = failed or raised
        if failed:
            raise failed

    def _end(self, failed: BaseException | None) -> None:
        with self._deciding:
            self._loader, self.send._open, self.receive._open = None, False, False
        if failed and self._inside:
            # Threads that still use it may wait for other ranks, which wait for what the failed code has not done.
            reason = f"code {self._name} failed on rank {self.rank}: ".encode() + _registry.words(failed)
            check(library().antiphon_executor_abort(self._executor, reason))
        while self._inside:
            time.sleep(0.001)


def register_code(
    name: str,
    collective: str,
    run: Callable[[CodeCall], object],
    *,
    version: int = 0,
    constraint: Constraint = Constraint(),
    tags: Iterable[str] = (),
    in_place: bool | None = None,
    min_message_size: int = 0,
    max_message_size: int | None = None,
    devices: bool = False,
) -> None:
    """Registers a function that serves calls by name of this process that it fits, after registered plans and before installed ones
    and the built-in algorithms. Register on all ranks, in the same order, between calls.

    `run(call)` is given a `CodeCall`, and must have made the call when it returns. It is called once all ranks have come to the
    call and compared `name` and `version`; raise `version` whenever the function would no longer work together with its earlier
    version. It is called on the thread that makes the call or, in a group, on one for the communicator's calls, possibly on
    several threads at a time. What it raises aborts the communicator, since others may wait for what this rank would have done.

    It serves ranks on the host; with `devices`, those on GPUs, too. There `run` must put all that it does into `call.stream`,
    which may not have come to the call yet, and must not wait for the stream while it is recorded into a graph; replays do not
    call `run` again.

    `collective` is what it computes, such as "allreduce"; `constraint`, `in_place` and the sizes, in bytes of the larger buffer,
    say which calls it fits; for an alltoallv or allgatherv, in which ranks differ, sizes and `in_place` say nothing. Raises
    InvalidArgumentError for a name that is taken.
    """
    if not callable(run):
        raise TypeError(f"cannot register {run!r:.80}: allowed a function that takes a CodeCall")
    if not isinstance(devices, bool):
        raise TypeError(f"cannot register {name!r} with devices {devices!r:.80}: allowed True and False")
    largest = (1 << 64) - 1
    most = largest if max_message_size is None else max_message_size
    # In C, a largest size of 0 means no limit.
    for what, value, least in (
        ("version", version, 0),
        ("min_message_size", min_message_size, 0),
        ("max_message_size", most, 1),
    ):
        if not least <= value <= largest:
            raise InvalidArgumentError(f"cannot register {name!r} with {what} {value}: allowed {least} to {largest}")

    def serve(raw: _abi.CodeCall) -> None:
        if raw.stream and raw.device < 0:
            # Earlier calls on the stream may still write the buffers.
            check(library().antiphon_stream_synchronize(Owned(raw.stream)))
        CodeCall(raw, name)._serve(run)

    said = _registry.terms(
        name,
        tags=tags,
        dtypes=[dtype._number() for dtype in constraint.dtypes],
        ops=constraint.ops,
        world=constraint.world_size,
        ranks_per_node=constraint.n_ranks_per_node,
        root=constraint.root,
        in_place=in_place,
        min_bytes=min_message_size,
        max_bytes=most,
    )
    _registry.put_code(name, version, collective, serve, devices, said)


def unregister_code(name: str) -> None:
    """Takes code out, by its name. Calls that are under way go on. Raises InvalidArgumentError if it is not registered."""
    _registry.unregister(name)
