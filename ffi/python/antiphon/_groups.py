"""Groups of calls, and who keeps what calls use until they are complete."""

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
"""Numbers what streams keep."""


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
"""Those of all threads: without any, a call by itself does not look for that of its thread."""


def keep(stream: Stream | None, *used: object) -> None:
    """Has what a call uses kept until it is complete: by the group that it is gathered in, and else by the stream that it is in by
    now, unless that is the application's. Not before: who waits for the stream meanwhile would let go of it."""
    if _open and (group := _own.group) is not None:
        group.used.append((stream, used))
    elif stream is not None and stream._kept is not None:
        stream._kept[next(_calls)] = used


def alone(what: str) -> None:
    """Raises UnsupportedError where this thread is in a group."""
    if _open and _own.group is not None:
        raise UnsupportedError(f"cannot {what} inside a group; make it behind the `with antiphon.group():`")


class Using:
    """In it a call is made, of which is [kept](keep) what it uses; also where an interrupt comes while the call is put somewhere."""

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
    complete when the `with` ends, and not before; those on streams go on by themselves. What is wrong with a call the call raises. If
    one was refused, or the `with` is left by an exception, none of the group's calls is made.

    Groups are of the thread that begins them. One inside another is part of it. `barrier` and executors' calls raise
    UnsupportedError inside. On the host a rank may gather calls that others make one by one; on GPUs its peers gather what it
    gathers.
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
        # Code of Python that serves one of the calls is in no group.
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
