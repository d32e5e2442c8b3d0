"""Threads of process groups, and how to keep them out of torch's code when the interpreter ends.

At its end Python stops a thread that comes back to it by unwinding the thread's stack. C++ code that is unwound so ends the
whole process: it says `terminate called without an active exception`, and its status is a failure.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from antiphon._library import await_end

__all__ = ["Work", "begun", "do", "ending", "leave_behind", "rest"]

_IDLE = 5.0
"""Seconds that a thread without work stays."""


class Work:
    """Counts the jobs of threads that may be in torch's code for them, from when the jobs are given to them."""

    def __init__(self) -> None:
        # A plain lock, which no interrupt leaves locked. A condition is Python code, which an interrupt might leave so.
        self._counting = threading.Lock()
        self._count = 0

    def begin(self) -> None:
        """Notes one job more."""
        with self._counting:
            self._count += 1

    def end(self) -> None:
        """Notes that a job is over, and nothing of it is left."""
        with self._counting:
            self._count -= 1

    def over(self) -> bool:
        """Whether there is no job."""
        return not self._count


class _Threads:
    """Threads for jobs that may wait for others: a job always finds a free one, or gets a new one."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._free = 0
        """How many threads wait for a job and have not been promised one."""

    def do(self, job: Callable[[], None]) -> bool:
        """Makes a thread do a job; False where there can be no more threads, as while Python ends."""
        with self._counting:
            if self._free:
                self._free -= 1
            else:
                try:
                    threading.Thread(target=self._do_all, name="antiphon futures", daemon=True).start()
                except RuntimeError:
                    return False
            # From here on the job counts as under way, though perhaps no thread has seen it yet.
            self._work.begin()
            self._jobs.put(job)
        return True

    def _do_all(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE)
            except queue.Empty:
                with self._counting:
                    if self._free:
                        self._free -= 1
                        return
                # Somebody has just promised this thread a job.
                continue
            try:
                job()
                # Objects of torch that the job holds go while it still counts.
                del job
            finally:
                self._work.end()
            with self._counting:
                self._free += 1


_work = Work()
_threads = _Threads(_work)
_ending = False


def begun() -> Work:
    """Notes that a thread which Python may end with the interpreter is given a job; the thread says when it is over."""
    work = _work
    work.begin()
    return work


def do(job: Callable[[], None]) -> bool:
    """Makes a thread do a job that may wait for others; False where there can be no more threads, as while Python ends."""
    return _threads.do(job)


def ending() -> bool:
    """Whether the interpreter ends: then whoever waits for others gives up."""
    return _ending


def rest(seconds: float) -> None:
    """Called when the interpreter ends: waits at most `seconds` until no thread has anything to do."""
    global _ending
    _ending = True
    await_end(_work.over, seconds)


def leave_behind() -> None:
    """Called in a process that was just forked, where the threads do not exist, and locks may have been left locked."""
    global _work, _threads
    _work = Work()
    _threads = _Threads(_work)
