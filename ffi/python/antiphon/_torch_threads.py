"""Threads of process groups, none of which is in torch's code when the interpreter ends.

Python ends a thread then that comes back to it, by unwinding what it is in. What is written in C++ ends the whole process for
that: it says `terminate called without an active exception`, and its status is no success.
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
    """What threads have to do that may take them into torch's code, from when it is given to them."""

    def __init__(self) -> None:
        # A lock itself, which no interrupt leaves locked, and no condition, which is of Python.
        self._counting = threading.Lock()
        self._count = 0

    def begin(self) -> None:
        """There is one thing more."""
        with self._counting:
            self._count += 1

    def end(self) -> None:
        """One is over, and nothing of it is left."""
        with self._counting:
            self._count -= 1

    def over(self) -> bool:
        """Whether there is nothing."""
        return not self._count


class _Threads:
    """Threads for what may wait for others: there is always one that is free."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._counting = threading.Lock()
        self._free = 0
        """Threads that wait for work, and for which there is none yet."""

    def do(self, job: Callable[[], None]) -> bool:
        """Has a thread do a job; False where there can be no more threads, as while Python ends."""
        with self._counting:
            if self._free:
                self._free -= 1
            else:
                try:
                    threading.Thread(target=self._do_all, name="antiphon futures", daemon=True).start()
                except RuntimeError:
                    return False
            # The job is under way, though no thread may have seen it.
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
                # Somebody has just counted on this one.
                continue
            try:
                job()
                # What it has of torch's goes while it counts.
                del job
            finally:
                self._work.end()
            with self._counting:
                self._free += 1


_work = Work()
_threads = _Threads(_work)
_ending = False


def begun() -> Work:
    """A thread that Python may end with the interpreter is given something to do; it says when that is over."""
    work = _work
    work.begin()
    return work


def do(job: Callable[[], None]) -> bool:
    """Has a thread do a job that may wait for others; False where there can be no more threads, as while Python ends."""
    return _threads.do(job)


def ending() -> bool:
    """Whether the interpreter ends: who waits for others then gives up."""
    return _ending


def rest(seconds: float) -> None:
    """The interpreter ends: waits so many seconds at most until no thread has anything to do."""
    global _ending
    _ending = True
    await_end(_work.over, seconds)


def leave_behind() -> None:
    """In a process that was just forked: the threads are not there, and locks are as whatever thread left them."""
    global _work, _threads
    _work = Work()
    _threads = _Threads(_work)
