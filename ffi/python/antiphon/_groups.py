"""Groups of calls, and what keeps the objects that calls use until the calls are complete."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from antiphon._library import check, library
from antiphon.errors import InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    from antiphon._streams import Stream

__all__ = ["Using", "alone", "group", "keep"]

_calls = itertools.count()
"""Numbers the calls whose objects streams keep."""


class _Open:
    """A group that was begun and has not ended."""

    def __init__(self) -> None:
        self.used: list[tuple[Stream | None, tuple[object, ...]]] = []
        """What its calls use, each with its stream."""
        self.failed: BaseException | None = None
        """What was raised in a part of it."""


class _Own(threading.local):
    group: _Open | None = None
    """The group of this thread."""


_own = _Own()
_open: set[_Open] = set()
"""The open groups of all threads: while there is none, a single call does not look for that of its thread."""


def keep(stream: Stream | None, *used: object) -> None:
    """Keeps what a call uses until the call is complete. The group that gathers the call keeps it, or else the call's stream,
    unless that is the application's. It is called only once the call is in the stream: earlier, a thread that waits for the
    stream would let go of it."""
    if _open and (group := _own.group) is not None:
        group.used.append((stream, used))
    elif stream is not None and stream._kept is not None:
        stream._kept[next(_calls)] = used


def alone(what: str) -> None:
    """Raises UnsupportedError where this thread is in a group."""
    if _open and _own.group is not None:
        raise UnsupportedError(f"cannot {what} inside a group; make it behind the `with antiphon.group():`")


class Using:
    """A context in which a call is made; on exit what the call uses is [kept](keep), also if an interrupt came while the call
    was put somewhere."""

    __slots__ = ("_stream", "_used")

    def __init__(self, stream: Stream | None, *used: object) -> None:
        self._stream, self._used = stream, used

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        keep(self._stream, *self._used)


@contextmanager
def group() -> Iterator[None]:
    """Makes the calls of a `with` together when it ends, so that none waits for one that comes later:

        with antiphon.group():
            communicator.send(edge, right)
            communicator.receive(halo, left)

    Sends and receives may come in any order, and a rank may send to itself. Collectives of a communicator run in the order of
    their calls; calls on several communicators may be gathered, so one thread may drive many ranks. Calls without a stream are
    complete when the `with` ends, and not before; those on streams may still be under way. A call itself raises what is wrong
    with it. If one was refused, or the `with` is left by an exception, none of the group's calls is made.

    A group belongs to the thread that begins it. A group inside another is part of that one. `barrier` and executors' calls
    raise UnsupportedError inside. On the host a rank may gather calls that others make one by one; on GPUs its peers must
    gather what it gathers.
    """
    outer = _own.group
    if outer is not None:
        try:
            yield
        except BaseException as error:
            outer.failed = error
            raise
        return
    lib, own = library(), _Open()
    begun = False
    try:
        _open.add(own)
        _own.group, begun = own, True
        check(lib.antiphon_group_begin())
        yield
        if own.failed is not None:
            raise InvalidArgumentError(
                f"cannot end a group: saw {type(own.failed).__name__} raised in a group inside it, allowed none"
            ) from own.failed
        # Python code that serves one of the calls must not find itself in this group.
        _own.group, begun = None, False
        try:
            check(lib.antiphon_group_end())
        finally:
            for stream, used in own.used:
                keep(stream, *used)
    finally:
        _own.group = None
        _open.discard(own)
        if begun:
            lib.antiphon_group_cancel()
