"""Calls of a process group that are made on a thread, in order: all on the host's memory, and transfers in a GPU's."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from antiphon._torch_futures import Chain, Outcome, anew
from antiphon._torch_meeting import Meet, Meeting, destroyed, not_begun
from antiphon._torch_sides import Side, tensors_of
from antiphon._torch_streams import ABORTED, GIVEN_UP, PATIENCE, Body, Limit, Line, SourcedWork, StreamWork
from antiphon._torch_threads import begun
from antiphon._torch_untraced import untraced
from antiphon.communicator import Communicator
from antiphon.errors import AntiphonError

__all__ = ["HostWork", "Lane", "SeveralWorks", "end_all"]


@untraced
class HostWork(SourcedWork):
    """A call under way: `wait` returns when it is done, and raises what went wrong."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome
        self.limit: float | None = None
        """Seconds that a `wait` without a timeout of its own may take."""
        self.meeting: Callable[[Limit], None] | None = None
        """Returns when those who make the call have met, or failed to; raises TimedOutError when the time is over."""
        # It refers to itself until somebody waits for it, or has its future: so it lives until Python's collector finds it.
        self._held: Work | None = self
        outcome.hold(self)

    def wait(self, timeout: object = None) -> bool:
        """Returns when the call is done, and raises what went wrong. With a timeout it raises TimedOutError when that is over;
        the call goes on. Without one the group's timeout holds."""
        limit = Limit.of(timeout, self.limit)
        if self.meeting and not self.outcome.over:
            self.meeting(limit)
        if not self.outcome.wait(limit.left()):
            raise limit.error()
        self._held = None
        self.outcome.waited(self)
        self.outcome.value()
        return True

    def get_future(self) -> Any:
        """A future that is done when the call is, and has its tensors."""
        self._held = None
        return self.outcome.future()

    def is_completed(self) -> bool:
        """Whether the call is done. Does not wait."""
        return self.outcome.over

    def is_success(self) -> bool:
        """Whether the call is done, and nothing went wrong. Does not wait."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong, if the call is done and something did."""
        return self.outcome.failed

    def result(self) -> Any:
        """The call's tensors, once it is done: waits for that as `wait` does."""
        self.wait()
        return self.outcome.result


class Lane:
    """A communicator, and the thread that makes its calls in order."""

    def __init__(self, name: str, meet: Meet, line: Line | None = None, limit: float | None = None) -> None:
        self._name, self._line = name, line
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._ended = False
        self._left: AntiphonError | None = None
        self.given_up = False
        """Whether it was given up because its calls did not end in time."""
        # Held so that no call is queued behind the mark of the end.
        self._door = threading.RLock()
        # Whatever may wait for other ranks is done in threads, not here.
        self._meeting = Meeting(name, meet, limit)
        self._chain = Chain()
        self._thread = threading.Thread(target=self._work, name=f"antiphon {name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        meeting = self._meeting
        while (call := self._calls.get()) is not None:
            work, body, done, failed = call
            try:
                body(meeting.communicator())
                # Inside, too: what goes wrong in it ends the call, and not the thread, for which everybody would wait.
                done()
            except BaseException as error:  # noqa: BLE001: the waiting thread raises it.
                if meeting.error():
                    meeting.give_up(error)
                failed(error)
            # Nothing of a call is kept until the next one.
            del call, body, done, failed
            work.end()
        if self._line is not None:
            self._line.end(Limit(PATIENCE))

    def submit(self, body: Callable[[Communicator], None], result: Any) -> Any:
        """Makes the thread run `body`; the work is done, and its result there, when it has."""
        outcome = Outcome(self._chain)
        outcome.maker = self._thread
        self._put(body, lambda: outcome.succeed(result), outcome.fail)
        return HostWork(outcome)

    def _put(
        self, body: Callable[[Communicator], None], done: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Makes the thread run `body`, and then call `done` or `failed`."""
        with self._door:
            # Once the lane is broken calls are refused: a caller that did not ask how earlier ones went should not go on.
            if refused := self._left or self._meeting.broken or (destroyed() if self._ended else None):
                raise anew(refused)
            self._calls.put((begun(), body, done, failed))

    def transfer(self, body: Body, side: Side, result: Any, source: int | None = None) -> Any:
        """Makes the thread run `body`: on the host until it is done, for a GPU until it is in the stream. `source` is the rank
        from which it receives, if it does."""
        line = self._line
        if line is None:
            work = self.submit(lambda communicator: body(communicator, None), result)
            work.meeting, work.source = self._met, source
            return work
        work, ready = line.begin(tensors_of([side]))
        work.meeting, work.source, work.outcome.maker = self._met, source, self._thread
        try:
            self._put(lambda communicator: line.make(communicator, body, work, ready, result), lambda: None, work.fail)
        except BaseException as error:
            work.fail(error)
            raise
        return work

    def _met(self, limit: Limit) -> None:
        """Returns when both ranks have met, or failed to; raises TimedOutError when the time is over."""
        if not self._meeting.over(limit.left()):
            raise not_begun(self._name, limit.seconds)

    def error(self) -> AntiphonError | None:
        """What broke the communicator. Does not wait."""
        return self._left or self._meeting.error()

    def abort(self, why: str = ABORTED) -> None:
        """Has calls under way fail, and later ones."""
        self._meeting.abort(why)

    def leave_behind(self, error: AntiphonError) -> None:
        """Called in a forked process, where its thread does not exist: calls are refused from then on."""
        self._door, self._left = threading.RLock(), error

    def close(self) -> None:
        """Takes no more calls, and has the thread stop behind those that are under way. Does not wait."""
        with self._door:
            self._ended = True
            self._calls.put(None)

    def end(self, until: Limit) -> None:
        """Waits for the thread of a closed lane to stop; calls that have not ended in time are given up."""
        self._thread.join(until.left())
        if self._thread.is_alive():
            self.given_up = True
            self._meeting.abort(GIVEN_UP)
        self._meeting.close()

    def leave(self) -> None:
        """Gives the communicator of a lane that has ended back."""
        self._meeting.leave()


def end_all(lanes: dict[Any, Lane | Line | Meeting]) -> None:
    """Ends all lanes of a group, when their calls have ended or the time is up."""
    every = list(lanes.values())

    def each(ask: Callable[[Lane | Line | Meeting], None]) -> None:
        for lane in every:
            with contextlib.suppress(Exception):  # The others must end all the same, and nobody is left to be told.
                ask(lane)

    def end() -> None:
        until = Limit(PATIENCE)
        each(lambda lane: lane.end(until))

    # All are closed first, so that they are waited for together. The second round is for those that were given up.
    each(lambda lane: lane.close())
    end()
    if any(lane.given_up for lane in every):
        # Peers on other nodes may wait for this rank in other lanes. If those were left in good order, the peers would wait
        # until their time limit.
        each(lambda lane: lane.abort(GIVEN_UP))
    end()
    each(lambda lane: lane.leave())


@untraced
class SeveralWorks(Work):  # type: ignore[misc]
    """Calls that are waited for together."""

    def __init__(self, works: list[HostWork | StreamWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: object = None) -> bool:
        """Waits for each; the timeout is for all together."""
        limit = Limit.of(timeout)
        return all([work.wait(limit) for work in self._works])

    def get_future(self) -> Any:
        """A future that is done when all are."""
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
