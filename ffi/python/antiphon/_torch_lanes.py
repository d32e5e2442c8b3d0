"""Calls of a process group that are made on a thread, in order: all on the host's memory, and transfers in a GPU's."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from antiphon._torch_sides import Side, tensors_of
from antiphon._torch_streams import ABORTED, PATIENCE, Body, Line, StreamWork, hold, seconds_of, too_long
from antiphon.communicator import Communicator, UniqueId
from antiphon.errors import AbortedError, InvalidArgumentError, RendezvousError, TimedOutError

__all__ = ["HostWork", "Lane", "SeveralWorks", "meet", "meet_far"]


class HostWork(Work):  # type: ignore[misc]
    """A call under way: `wait` returns when it is done, and raises what went wrong."""

    def __init__(self, future: Any) -> None:
        super().__init__()
        self._future = future
        self.limit: float | None = None
        """Seconds that a `wait` may take that says none itself."""
        self.meeting: Callable[[float | None], None] | None = None
        """Returns when those who make the call have met, or failed to; raises TimedOutError after so many seconds."""
        # Until somebody waits for it, or has its future: as long as Python's collector leaves it.
        self._held: Work | None = hold(self, future)

    def wait(self, timeout: object = None) -> bool:
        """Returns when the call is done, and raises what went wrong. With a timeout it raises TimedOutError when that is over; the
        call goes on. Without one the group's decides."""
        seconds = seconds_of(timeout) or self.limit
        if self.meeting:
            self.meeting(seconds)
        if seconds is not None and not self._future.done():
            done = threading.Event()
            self._future.add_done_callback(lambda _: done.set())
            if not done.wait(seconds):
                raise too_long(seconds)
        try:
            self._future.wait()
        finally:
            self._held = None
        return True

    def get_future(self) -> Any:
        """What is done when the call is, and has its tensors."""
        self._held = None
        return self._future

    def is_completed(self) -> bool:
        """Whether the call is done. Does not wait."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether the call is done, and nothing went wrong. Does not wait."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong, if the call is done and something did."""
        if self.is_completed():
            try:
                self._future.value()
            except BaseException as error:  # noqa: BLE001: whatever it is.
                return error
        return None

    def result(self) -> Any:
        """The call's tensors, once it is done."""
        return self._future.value()


class Lane:
    """A communicator, and the thread that makes its calls in order."""

    def __init__(self, name: str, meet: Callable[[], Communicator], line: Line | None = None, limit: float | None = None) -> None:
        self._name, self._line, self._limit = name, line, limit
        self._met = threading.Event()
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._communicator: Communicator | None = None
        self._broken: BaseException | None = None
        self._aborted = False
        # What may wait for others is not done here, but in the thread.
        self._thread = threading.Thread(target=self._work, args=(meet,), name=f"antiphon {name}", daemon=True)
        self._thread.start()

    def _work(self, meet: Callable[[], Communicator]) -> None:
        while (call := self._calls.get()) is not None:
            body, done, failed = call
            try:
                if self._communicator is None:
                    self._communicator = meet()
                    if self._aborted:
                        self._communicator.abort(ABORTED)
                self._met.set()
                body(self._communicator)
            except BaseException as error:  # noqa: BLE001: it is the waiting thread's.
                self._met.set()
                if self._communicator is None or self._communicator.error():
                    self._broken = error
                failed(error)
            else:
                done()
            # Nothing of a call is kept until the next one.
            del call, body, done, failed
        if self._line is not None:
            self._line.end()
        if self._communicator is not None:
            self._communicator.close()

    def submit(self, body: Callable[[Communicator], None], result: Any) -> Any:
        """Has the thread run `body`; the work is done, and its result there, when it has."""
        future: Any = torch.futures.Future()
        self._put(body, lambda: future.set_result(result), future.set_exception)
        return HostWork(future)

    def _put(
        self, body: Callable[[Communicator], None], done: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Has the thread run `body`, and then say how that went."""
        if self._broken is not None:
            # Who did not ask what became of the call before shall not go on as if all were well.
            raise self._broken
        self._calls.put((body, done, failed))

    def transfer(self, body: Body, side: Side, result: Any) -> Any:
        """Has the thread run `body`: on the host until it is done, for a GPU until it is in the stream."""
        line = self._line
        if line is None:
            work = self.submit(lambda communicator: body(communicator, None), result)
            work.meeting = self._meeting
            return work
        work, ready = line.begin(tensors_of([side]))
        work.meeting = self._meeting
        try:
            self._put(lambda communicator: line.make(communicator, body, work, ready, result), lambda: None, work.fail)
        except BaseException as error:
            work.fail(error)
            raise
        return work

    def _meeting(self, seconds: float | None) -> None:
        seconds = self._limit if seconds is None else seconds
        if not self._met.wait(seconds):
            raise TimedOutError(
                f"cannot send {self._name}: not both ranks had begun within {seconds:g} s; see what the other one does instead"
            )

    def abort(self) -> None:
        """Has calls under way fail, and later ones."""
        self._broken = AbortedError("cannot make a call: its process group was aborted; make another one")
        # Whichever of the two is later, this or the communicator, sees the other.
        self._aborted = True
        if self._communicator is not None:
            self._communicator.abort(ABORTED)

    def end(self) -> None:
        """Lets calls end that are under way, and stops the thread."""
        self._broken = self._broken or InvalidArgumentError("cannot make a call: its process group was destroyed; make another one")
        self._calls.put(None)
        self._thread.join(PATIENCE)
        if self._thread.is_alive() and self._communicator is not None:
            self._communicator.abort("its process group is given up")
            self._thread.join(PATIENCE)


def meet(place: str, rank: int, limit: float, device: str) -> Communicator:
    """The communicator of two ranks of which one may come long after the other."""
    end = time.monotonic() + limit
    while True:
        begun = time.monotonic()
        try:
            return Communicator.from_place(place, rank, 2, timeout=limit, device=device)
        except (TimedOutError, RendezvousError):
            # A failure that is not for want of the peer comes at once.
            if time.monotonic() - begun < PATIENCE or time.monotonic() > end:
                raise


def meet_far(store: Any, key: str, rank: int, limit: float, device: str) -> Communicator:
    """The same of ranks of two nodes. They ask the store again and again: who waits in it keeps others of its process out."""
    end = time.monotonic() + limit
    if rank == 0:
        store.set(key, bytes(UniqueId.create()).decode())
        store.add(f"{key} is there", 1)
    while not store.add(f"{key} is there", 0):
        if time.monotonic() > end:
            raise TimedOutError(f"cannot receive: no send began within {limit:g} s; see what the rank that sends does instead")
        time.sleep(0.005)
    id = UniqueId(store.get(key))
    return Communicator.from_id(id, rank, 2, timeout=max(end - time.monotonic(), PATIENCE), device=device)


class SeveralWorks(Work):  # type: ignore[misc]
    """Calls that are waited for together."""

    def __init__(self, works: list[HostWork | StreamWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: object = None) -> bool:
        """Waits for each."""
        return all([work.wait(timeout) for work in self._works])

    def get_future(self) -> Any:
        """What is done when all are."""
        return torch.futures.collect_all([work.get_future() for work in self._works])

    def is_completed(self) -> bool:
        """Whether all are done. Does not wait."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all are done, and nothing went wrong. Does not wait."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        """What is known to have gone wrong first."""
        return next((error for work in self._works if (error := work.exception())), None)

    def result(self) -> Any:
        """The tensors of each."""
        return [work.result() for work in self._works]
