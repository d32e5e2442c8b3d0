"""Loaded plans, and what loads and runs them: the half of `antiphon.plan.Executor` that knows the library."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from antiphon import _abi
from antiphon._buffers import NAMES, Span, device_span, name_of, span
from antiphon._groups import Using
from antiphon._library import Handle, Owned, check, library
from antiphon._arguments import device_queue, element_bytes, number, queue
from antiphon._streams import Stream, adopted, synchronize
from antiphon.communicator import Communicator, Op
from antiphon.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from antiphon.plan import ExecutionPlan

__all__ = ["LoadedPlan"]


class LoadedPlan(Handle):
    """A plan that is checked, verified, and ready to run on one rank."""

    _destroyed_by = "antiphon_plan_destroy"

    def verdict(self) -> str:
        """What is known of it: `proven`, `not proven` (the report has the reasons), or `not verified`."""
        verdict = ctypes.c_int32()
        check(library().antiphon_plan_verdict(self._open(), verdict))
        return _abi.Verdict(verdict.value).name.lower().replace("_", " ")

    def report(self) -> str:
        """What the verifier says of it. The first call may take a while."""
        needed = ctypes.c_uint64()
        check(library().antiphon_plan_report(self._open(), None, 0, needed))
        text = ctypes.create_string_buffer(needed.value)
        check(library().antiphon_plan_report(self._open(), text, needed.value, needed))
        return text.value.decode("utf-8", "replace")


class _Executor(Handle):
    """The library's executor."""

    _destroyed_by = "antiphon_executor_destroy"


class _Kept(Handle):
    """A communicator that stays usable here though somebody closes it."""

    def __init__(self, handle: Owned) -> None:
        self._own(handle)


class _Lent:
    """An executor that the library itself destroys."""

    def __init__(self, handle: Owned) -> None:
        self._handle = handle

    def _open(self) -> Owned:
        return self._handle


class Lane:
    """The stream of a GPU on which all runs of a lent executor are; it is lent too."""

    def __init__(self, handle: Owned, native: int) -> None:
        self._handle, self._native = handle, native

    def span(self, holder: Any, writable: bool) -> Span:
        """Where an object's bytes are, ready for what is on the stream."""
        return device_span(holder, writable, self._native)

    def queue(self, _: Stream | None, *used: Span | None) -> Owned:
        """Its handle, for buffers that name no other stream."""
        for named in {part.stream for part in used if part is not None and part.stream is not None}:
            # The default stream may be called 0 or 1.
            if (named or 1) != (self._native or 1):
                raise InvalidArgumentError(
                    f"cannot run a plan over an array of stream {named:#x}: allowed those of the call's, {self._native:#x}"
                )
        return self._handle


class Loader:
    """Loads each plan once, by its content, and runs what is loaded."""

    def __init__(self, over: Communicator | Owned, lane: Lane | None = None) -> None:
        """Makes a loader over a communicator; or with an executor that the library lends, which must not be used once the
        library has taken it back, and on a GPU with a `lane`."""
        self._executor: _Executor | _Lent
        self._span: Callable[[Any, bool], Span] = span
        self._queue: Callable[..., Owned | None] = queue
        self._adopt: Callable[[int], Stream] | None = None
        if isinstance(over, Owned):
            self._executor = _Lent(over)
            if lane is not None:
                self._span, self._queue = lane.span, lane.queue
        else:
            if over._on_device:
                # The communicator may be closed before this is, as on the host.
                kept = _Kept(over._open())
                self._span = device_span
                self._adopt = lambda native: adopted(kept._open(), native)
                self._queue = partial(device_queue, lambda native: synchronize(kept._open(), native))
            made = ctypes.c_void_p()
            check(library().antiphon_executor_create(over._open(), made))
            self._executor = _Executor(made.value or 0)
        self._loaded: dict[object, LoadedPlan] = {}
        self._lock = threading.Lock()

    def load(self, plan: ExecutionPlan) -> LoadedPlan:
        """The plan, loaded once."""
        content = plan._bytes
        return self._once(content, "antiphon_plan_load_bytes", content, len(content))

    def load_name(self, name: str, in_place: bool, root: int) -> LoadedPlan:
        """The plan of a built-in algorithm, loaded once."""
        place = int(in_place), number("root", root)
        return self._once((name, *place), "antiphon_plan_load_name", name.encode(), *place)

    def reset(self) -> None:
        """Forgets what is loaded; loaded plans that others hold, and runs under way, are not affected."""
        with self._lock:
            self._loaded.clear()

    def _once(self, key: object, function: str, *arguments: Any) -> LoadedPlan:
        with self._lock:
            loaded = self._loaded.get(key)
        if loaded is None or loaded.closed:
            made = ctypes.c_void_p()
            # Not under the lock: verifying may take a while.
            check(getattr(library(), function)(self._executor._open(), *arguments, made))
            with self._lock:
                loaded = self._loaded[key] = LoadedPlan(made.value or 0)
        return loaded

    def run(self, plan: LoadedPlan, send: Any, receive: Any, op: Op | None, stream: Stream | None) -> Any:
        """Runs a plan over buffers."""
        sent = self._span(send, receive is None)
        received = sent if receive is None else self._span(receive, True)
        dtype = _one_type((sent, send), (received, send if receive is None else receive))
        line = self._queue(stream, sent, received)
        with Using(stream, sent, received):
            self._call(plan, sent, received, dtype, _abi.Op.OF_PLAN if op is None else op, line)
        return send if receive is None else receive

    def execute(
        self, plan: LoadedPlan, send: tuple[Any, int], receive: tuple[Any, int], dtype: object, stream: Any
    ) -> None:
        """Runs a plan over bytes at addresses."""
        sent, received = self._side(*send, False), self._side(*receive, True)
        type = _number_of(dtype)
        for side in (sent, received):
            if side.bytes % element_bytes(type):
                raise InvalidArgumentError(
                    f"cannot execute a plan over {side.bytes} bytes: allowed a multiple of {element_bytes(type)}"
                )
        if not isinstance(stream, Stream):
            if stream:
                # A stream of the application: calls in it go on when the adopted one is given back.
                if self._adopt is None:
                    raise UnsupportedError(
                        f"cannot execute on stream {stream!r:.40}: the communicator is on the host; "
                        "allowed 0, and a Stream of the communicator"
                    )
                stream = self._adopt(stream)
            else:
                stream = None
        line = self._queue(stream, sent, received)
        with Using(stream, sent, received):
            self._call(plan, sent, received, type, _abi.Op.OF_PLAN, line)

    def _side(self, at: Any, size: int, writable: bool) -> Span:
        """A buffer of a call: an address with its size, or an object that has at least as many bytes."""
        if size < 0:
            raise InvalidArgumentError(f"cannot execute a plan over {size} bytes: allowed 0 and more")
        if isinstance(at, int) or at is None:
            return Span(at or 0, size, None, None)
        holder = self._span(at, writable)
        if holder.bytes < size:
            raise InvalidArgumentError(f"cannot use {size} bytes of a buffer: it has {holder.bytes}")
        return holder._replace(bytes=size)

    def _call(self, plan: LoadedPlan, sent: Span, received: Span, dtype: int, op: int, line: Owned | None) -> None:
        check(
            library().antiphon_execute(
                self._executor._open(),
                plan._open(),
                sent.address,
                sent.bytes,
                received.address,
                received.bytes,
                dtype,
                op,
                line,
            )
        )


def _one_type(*sides: tuple[Span, Any]) -> int:
    """The type of the elements of a plan's buffers. If one buffer names a type that NumPy lacks, the other may hold its bits as
    whole numbers."""
    dtype = next((span.dtype for span, _ in sides if span.dtype is not None), None)
    if dtype is None or any(span.dtype != dtype and (span.dtype is not None or not _bits(holder, dtype)) for span, holder in sides):
        raise InvalidArgumentError(
            "cannot run a plan over these elements: allowed one type for both buffers, of floats, or of integers of 8, 32 or 64 "
            "bits, in the machine's order of bytes; convert them"
        )
    return dtype


def _bits(holder: Any, dtype: int) -> bool:
    """Whether an object's elements are unsigned whole numbers as long as elements of the type."""
    said = getattr(holder, "dtype", None)
    return name_of(said) == f"uint{8 * element_bytes(dtype)}" and getattr(said, "isnative", True)


def _number_of(dtype: object) -> int:
    """The C interface's number of a type of elements: a DataType, or what `utils.torch_dtype_to_mscclpp_dtype` takes."""
    known = NAMES.get(name_of(dtype))
    if known is None:
        raise UnsupportedError(f"cannot execute a plan over elements of type {dtype}: allowed {', '.join(NAMES)}")
    return known
