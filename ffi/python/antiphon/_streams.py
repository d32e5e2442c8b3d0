"""Streams, and what becomes of those that nobody refers to any more."""

from __future__ import annotations

import collections
import ctypes
import os

from antiphon._library import Handle, Owned, at_end, check, failure, library, stay

__all__ = ["Stream", "adopted", "synchronize"]


class Stream(Handle):
    """A queue of calls: they run in order, and independently of other streams. It keeps the buffers of its calls until the
    calls have been waited for or, if nobody refers to the stream any more, until they are complete. A stream of the application
    does not, since perhaps nobody ever waits for it here."""

    _destroyed_by = "antiphon_stream_destroy"

    def __init__(self, value: int) -> None:
        self._kept: dict[int, object] | None = {}
        super().__init__(value)
        self._native: int | None = None
        _sweep()

    def _destroy_with(self, value: int) -> None:
        kept = {} if self._kept is None else self._kept
        self._when_left(_leave, value, os.getpid(), kept)

    def _stay(self) -> None:
        stay(self._kept)

    def synchronize(self) -> None:
        """Waits until all calls on it are complete; raises the first error among those since the last time."""
        handle, kept = self._open(), self._kept or {}
        # Calls that other threads make from here on may not be complete.
        earlier = list(kept)
        # If an interrupt comes before these are complete, all their buffers stay.
        result = library().antiphon_stream_synchronize(handle)
        error = failure(result) if result else None
        for number in earlier:
            kept.pop(number, None)
        if error:
            raise error

    def done(self) -> bool:
        """Whether all calls on it are complete. Does not wait."""
        done = ctypes.c_int32()
        check(library().antiphon_stream_query(self._open(), done))
        return bool(done.value)

    def close(self) -> None:
        """Waits for its calls, and gives it back."""
        if not self.closed:
            try:
                self.synchronize()
            finally:
                super().close()


_left: collections.deque[tuple[int, dict[int, object]]] = collections.deque()
"""Streams that nobody refers to any more, with the buffers of calls that may not be complete."""


@at_end
def _hold() -> None:
    """Calls on streams that were left may go on until the process ends, so their buffers outlive the interpreter."""
    stay(_left)


def _leave(value: int, pid: int, kept: dict[int, object]) -> None:
    # In a process that was forked from the library's, nothing of it may be called.
    if os.getpid() == pid:
        _left.append((value, kept))
        _sweep()


def _sweep() -> None:
    """Destroys the streams that were left and whose calls are complete. It may be called while it runs already."""
    for _ in range(len(_left)):
        try:
            value, kept = _left.popleft()
        except IndexError:
            return
        done = ctypes.c_int32()
        try:
            # A stream of the application keeps nothing, and is not asked: it may be gone already.
            if not kept or library().antiphon_stream_query(value, done) or done.value:
                library().antiphon_stream_destroy(value)
            else:
                _left.append((value, kept))
        except BaseException:  # An interrupt came before that was known.
            _left.append((value, kept))
            raise


def adopted(communicator: Owned, native: int) -> Stream:
    """A stream of the application, on the device of a communicator."""
    made = ctypes.c_void_p()
    check(library().antiphon_stream_adopt(communicator, native, made))
    stream = Stream(made.value or 0)
    stream._kept, stream._native = None, native
    return stream


def synchronize(communicator: Owned, native: int) -> None:
    """Waits for a stream of the application."""
    with adopted(communicator, native):
        pass
