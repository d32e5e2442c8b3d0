"""Calls of a process group with tensors of a GPU: they are made in a stream beside the application's.

An event in the caller's current stream marks what a call waits for, and the streams that wait for the call do so by an event
too: the host waits for no GPU, unless the caller asks for it.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from antiphon._buffers import NAMES, Span
from antiphon._groups import alone
from antiphon._library import PATIENCE
from antiphon._torch_futures import Chain, Outcome, anew
from antiphon._torch_untraced import untraced
from antiphon.communicator import Communicator, Memory, Op, Stream
from antiphon.errors import AntiphonError, InvalidArgumentError, TimedOutError

__all__ = [
    "ABORTED", "GIVEN_UP", "PATIENCE", "Body", "Limit", "Line", "SourcedWork", "StreamWork", "name_of_device", "on_one_device",
    "seconds_of",
]  # fmt: skip

ABORTED = "its process group was aborted"
"""Why calls fail that were under way when the group was aborted."""

GIVEN_UP = "its process group is given up"
"""Why calls fail that do not end when their group is destroyed."""


def seconds_of(timeout: object) -> float | None:
    """The seconds that a `wait` may take, from torch's timeout; None for no limit, which torch expresses by 0 or less."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout or 0)  # type: ignore[arg-type]
    return seconds if seconds > 0 else None


class Limit:
    """A time limit for waiting for several things one after the other."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        """The whole time; None for no limit."""
        self._end = None if seconds is None else time.monotonic() + seconds

    @classmethod
    def of(cls, timeout: object, otherwise: float | None = None) -> Limit:
        """The limit of a `wait`, from its argument: a limit that has begun already, or a timeout as torch gives it."""
        return timeout if isinstance(timeout, Limit) else cls(seconds_of(timeout) or otherwise)

    def left(self) -> float | None:
        """The seconds that are left."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def error(self) -> TimedOutError:
        """The error to raise when the time is over."""
        return TimedOutError(
            f"cannot wait any longer: the call was not complete within {self.seconds:g} s, and goes on; see what its peers do"
        )


Body = Callable[[Communicator, "Stream | None"], None]
"""Makes the calls that one call of torch needs: on the stream, or, if there is none, until they are complete."""


def name_of_device(device: Any) -> str:
    """What the library calls one of torch's GPUs."""
    return f"{'rocm' if torch.version.hip else 'cuda'}:{device.index or 0}"


def on_one_device(tensors: list[Any]) -> Any:
    """The GPU whose memory the tensors of a call are in; None for the host. Raises InvalidArgumentError for several places."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        named = ", ".join(sorted(map(str, devices)))
        raise InvalidArgumentError(f"cannot make a call with tensors on {named}: allowed one device; copy them to one")
    device = devices.pop() if devices else None
    return None if device is None or device.type == "cpu" else device


@contextlib.contextmanager
def _after(done: Any, device: Any) -> Iterator[None]:
    """A context in which the current stream is one that waits for the event behind a call, and for nothing else in the call's
    stream."""
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        stream.wait_event(done)
        yield


@untraced
class SourcedWork(Work):  # type: ignore[misc]
    """A call that may receive from a peer."""

    source: int | None = None
    """The rank from which the call receives, if it does."""

    def _source_rank(self) -> int:
        return int(super()._source_rank()) if self.source is None else self.source

    source_rank = _source_rank


@untraced
class StreamWork(SourcedWork):
    """A call in a stream of a GPU. `wait` has the current stream wait for it, and returns once it has been put there."""

    def __init__(self, line: Line, blocking: bool) -> None:
        super().__init__()
        self._line, self._blocking = line, blocking
        self.limit: float | None = None
        """Seconds that a `wait` without a timeout of its own may take."""
        self.meeting: Callable[[Limit], None] | None = None
        """Returns when those who make the call have met, or failed to; raises TimedOutError when the time is over."""
        self._done: Any = torch.cuda.Event()
        # The outcome has the call's tensors and must not refer to the work: they would stay until Python's collector finds both.
        self.outcome = Outcome(line.chain, [line.device], functools.partial(_after, self._done, line.device))
        """How putting it into the stream went."""
        # It refers to itself until somebody waits for it, or has its future: so it lives until Python's collector finds it.
        self._held: Work | None = self
        self.outcome.hold(self)

    def put(self, result: Any) -> None:
        """Marks the end of the call in the current stream."""
        self._done.record(torch.cuda.current_stream(self._line.device))
        self.outcome.succeed(result)

    def fail(self, error: BaseException) -> None:
        """The call could not be put into the stream."""
        self.outcome.fail(error)

    def wait(self, timeout: object = None) -> bool:
        """Makes what the current stream is given from now on wait for the call; raises what is known to have gone wrong. With a
        timeout the host waits until the call is done, and TimedOutError is raised when the time is over; the call goes on."""
        limit = Limit.of(timeout, self.limit)
        if self.meeting and not self.outcome.over:
            self.meeting(limit)
        if not self.outcome.wait(limit.left()):
            raise limit.error()
        if error := self.exception():
            raise anew(error)
        while limit.seconds is not None and not self._done.query():
            if not limit.left():
                raise anew(self.exception() or limit.error())
            time.sleep(0.0002)
        self._held = None
        self.outcome.waited(self)
        torch.cuda.current_stream(self._line.device).wait_event(self._done)
        if self._blocking:
            self._done.synchronize()
        # For the GPU, a call that failed while the host waited is simply done.
        if (self._blocking or limit.seconds is not None) and (error := self.exception()):
            raise anew(error)
        return True

    def synchronize(self) -> None:
        """The same."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same."""
        self.wait()

    def get_future(self) -> Any:
        """A future that is done when the call has been put into its stream; streams that use its tensors wait for the call
        itself."""
        self._held = None
        return self.outcome.future()

    def is_completed(self) -> bool:
        """Whether the call is done. Does not wait."""
        return self.outcome.over and (self.outcome.failed is not None or bool(self._done.query()))

    def is_success(self) -> bool:
        """Whether the call is done, and nothing went wrong. Does not wait."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What is known to have gone wrong, with this call or another of its communicator. Does not wait."""
        return self.outcome.failed or (self._line.error() if self.outcome.over else None)

    def result(self) -> Any:
        """The call's tensors, once it is in its stream."""
        self.outcome.wait(None)
        return self.outcome.value()


class Line:
    """A stream of a GPU in which a communicator's calls follow each other."""

    def __init__(self, device: Any) -> None:
        self.device = device
        """The GPU, as torch names it."""
        self.chain = Chain()
        """The futures of its calls."""
        self._stream: Any = torch.cuda.Stream(device)
        self._communicator: Communicator | None = None
        self._adopted: Stream | None = None
        self._flag: Memory | None = None
        self.given_up = False
        """Whether it was given up because its calls did not end in time."""

    def begin(self, used: list[Any], blocking: bool = False) -> tuple[StreamWork, Any]:
        """Begins a call that is to use tensors: its work, and an event behind all that the caller's stream was given so far."""
        for tensor in used:
            # PyTorch gives their memory to nobody else before this stream has come so far.
            tensor.record_stream(self._stream)
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(self.device))
        return StreamWork(self, blocking), ready

    def adopt(self, communicator: Communicator) -> None:
        """Has a communicator make the calls from now on."""
        self._communicator, self._adopted = communicator, communicator.adopt(self._stream.cuda_stream)

    def make(self, communicator: Communicator, body: Body, work: StreamWork, ready: Any, result: Any) -> None:
        """Puts a call into the stream, behind the event `ready`."""
        try:
            # A gathered call would be made only after its end was marked.
            alone("make a call of torch.distributed")
            if self._adopted is None:
                self.adopt(communicator)
            with torch.cuda.stream(self._stream):
                self._stream.wait_event(ready)
                body(communicator, self._adopted)
                work.put(result)
        except BaseException as error:
            work.fail(error)
            raise

    def barrier(self, communicator: Communicator) -> StreamWork:
        """A call whose `wait` makes the host wait until all ranks' streams have come so far."""
        work, ready = self.begin([], blocking=True)
        self.make(communicator, self._meet, work, ready, [])
        return work

    def _meet(self, communicator: Communicator, stream: Stream | None) -> None:
        if self._flag is None:
            self._flag = communicator.allocate(4)
        flag = Span(self._flag.address, 4, NAMES["int32"], self._flag)
        communicator.all_reduce(flag, None, Op.max, stream=stream)

    def error(self) -> AntiphonError | None:
        """What broke the communicator. Does not wait."""
        communicator = self._communicator
        return None if communicator is None or communicator.closed else communicator.error()

    def abort(self, why: str = ABORTED) -> None:
        """Has calls under way fail, and later ones."""
        if self._communicator is not None and not self._communicator.closed:
            self._communicator.abort(why)

    def close(self) -> None:
        """Does nothing: the GPU completes the calls that are under way by itself."""

    def end(self, until: Limit) -> None:
        """Waits for the calls that are under way; those that have not ended in time are given up."""
        communicator, adopted = self._communicator, self._adopted
        if communicator is None or adopted is None or communicator.closed:
            return
        # This polls without a thread: none can start while Python ends.
        try:
            while not adopted.done():
                if not until.left():
                    self.given_up = True
                    communicator.abort(GIVEN_UP)
                    break
                time.sleep(0.001)
            adopted.close()
        except AntiphonError:
            pass  # Whoever waited for the call has been told.
        finally:
            communicator.close()

    def leave(self) -> None:
        """Does nothing: `end` has given the communicator back."""
