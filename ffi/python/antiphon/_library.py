"""Finding and loading libantiphon.so, which owns all state of a process that communicates.

A process has one: where something has loaded it already (a program that links it, the drop-in for NCCL), that one serves
Python too. Otherwise it is the file `ANTIPHON_LIB_PATH`, or the one that the package brings.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from antiphon import _abi
from antiphon.errors import BY_RESULT, AntiphonError, InternalError, InvalidArgumentError, UnsupportedError

if TYPE_CHECKING:
    # What checkers of types bring themselves; `typing` has it since Python 3.11.
    from typing_extensions import Self

__all__ = [
    "PATIENCE", "Handle", "Owned", "at_end", "await_end", "behind_end", "check", "ends_by_exception", "failure",
    "library", "obtained", "patience", "stay"
]  # fmt: skip

SONAME = f"libantiphon.so.{_abi.MAJOR}"
OWN = Path(__file__).parent / "lib" / SONAME
"""The library that the package brings."""
PATIENCE = 5
"""Seconds that what is under way has to end."""

_lock = threading.Lock()
_loaded: Any = None


def library() -> Any:
    """The library, loaded at the first call.

    Raises UnsupportedError where there is none, or one of another interface.
    """
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _prepare(_find())
    return _loaded


def _find() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        pass  # Nobody has loaded one.
    path = os.environ.get("ANTIPHON_LIB_PATH") or str(OWN)
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise UnsupportedError(
            f"cannot load libantiphon.so: saw {error}; allowed the file that ANTIPHON_LIB_PATH names, else {OWN}; "
            "install the package by pip, or set ANTIPHON_LIB_PATH"
        ) from None


def _prepare(library: ctypes.CDLL) -> ctypes.CDLL:
    version = library.antiphon_abi_version
    version.restype = ctypes.c_uint32
    major, minor = divmod(version(), 1 << 16)
    if major != _abi.MAJOR or minor < _abi.MINOR:
        raise UnsupportedError(
            f"cannot use {library._name}: saw version {major}.{minor} of its interface, "
            f"allowed {_abi.MAJOR}.{_abi.MINOR} or a later {_abi.MAJOR}.x"
        )
    for name, (result, parameters) in _abi.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = _abi.TYPES[result]
        function.argtypes = [_abi.TYPES[parameter] for parameter in parameters.split()]
    return library


def failure(result: int) -> AntiphonError:
    """The error of a function that just returned `result` on this thread."""
    text = library().antiphon_last_error().decode("utf-8", "replace")
    return BY_RESULT.get(result, InternalError)(text)


def check(result: int) -> None:
    """Raises the error of a result that is none of success."""
    if result:
        raise failure(result)


def _destroy(function: Callable[[int], int], value: int, pid: int) -> None:
    # In a process that was forked from the library's, nothing of it may be called.
    if os.getpid() == pid and not _raised:
        function(value)


def obtained(make: Callable[[ctypes.c_void_p], int], destroyed_by: str) -> int:
    """The object that a function of the library makes, which may take long. Where an interrupt has come meanwhile, nobody gets it, and it
    is destroyed."""
    at = ctypes.c_void_p()
    try:
        check(make(at))
        return at.value or 0
    except BaseException:
        if at.value:
            getattr(library(), destroyed_by)(at.value)
        raise


_ends: list[Callable[[], None]] = []
"""What is called when the interpreter ends; the last one first."""


def at_end(function: Callable[[], None]) -> Callable[[], None]:
    """Has a function called when the interpreter ends, also in processes of multiprocessing, which may end without it. It may be called
    twice."""
    _ends.append(function)
    return atexit.register(function)


_raised = False
"""Whether what this process ran for multiprocessing raised, so that it ends."""


def _is_spawned() -> bool:
    started = sys.modules.get("multiprocessing.process")
    if started is None or started.parent_process() is None:
        return False
    import multiprocessing

    return multiprocessing.get_start_method(allow_none=True) == "spawn"


_spawned = _is_spawned()
"""Whether this process of multiprocessing ends as its interpreter does; as it is before the program says how others start."""


@functools.cache
def _watch(pid: int) -> None:
    """In a process of multiprocessing, has it looked whether what it runs raises, since the interpreter then ends as if all were well; and
    ends what is there where the process, which was forked, ends with no more of the interpreter's."""
    started = sys.modules.get("multiprocessing.process")
    if started is not None and started.parent_process() is not None:
        from multiprocessing import util

        # Before all else. Since Python 3.13 whatever was raised is over then.
        util.Finalize(None, _look, exitpriority=sys.maxsize)
        with suppress(AttributeError, RuntimeError):  # Nobody promises that it is there, and the process may be ending.
            threading._register_atexit(_look)  # type: ignore[attr-defined]
        if not _spawned:
            # Behind the processes that this one waits for.
            util.Finalize(None, _end_here, exitpriority=-1)


def _look() -> None:
    global _raised
    started = sys.modules["multiprocessing.process"]
    # What runs this process, and not what ran the one that it was forked of.
    frame: FrameType | None = sys._getframe()
    runs, this = started.BaseProcess._bootstrap.__code__, started.current_process()
    while frame is not None and not (frame.f_code is runs and frame.f_locals.get("self") is this):
        frame = frame.f_back
    if frame is None:
        return
    error = sys.exc_info()[1]
    # Once that has caught what was raised, or nothing was, it has the status.
    status = frame.f_locals.get("exitcode", error.code if isinstance(error, SystemExit) else error is not None)
    _raised = bool(status)


def _end_here() -> None:
    # Threads that the process waits for behind this may go on to make calls.
    main = threading.current_thread()
    if not any(thread is not main and not thread.daemon for thread in threading.enumerate()):
        for function in reversed(_ends):
            function()


class Owned(ctypes.c_void_p):
    """An object's address. A call that has it as an argument refers to it, so that nothing is destroyed under a call."""


_numbers = itertools.count()
_handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
"""Those that somebody refers to."""


def _leave_behind() -> None:
    """This process was forked: closes what its parent made, and goes on using."""
    global _spawned
    _spawned = False
    for reference in _handles.valuerefs():
        if (handle := reference()) is not None:
            handle._forked, handle._handle = True, None


os.register_at_fork(after_in_child=_leave_behind)


def ends_by_exception() -> bool:
    """Whether the program, as it ends, does so by an exception that it did not catch. Its ranks say no goodbye then before the process does:
    an interpreter may take seconds to end, and whoever started the ranks shall see this one fail first, and not those that miss it."""
    return _raised or (getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"))


def patience() -> float:
    """Seconds that what is under way has to end as the interpreter does: of an exception others shall not learn much later."""
    return 0.5 if ends_by_exception() else PATIENCE


def await_end(over: Callable[[], bool], seconds: float) -> None:
    """Waits so many seconds at most until something is over."""
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(0.001)


def stay(object: object) -> None:
    """Has it outlive the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(object))


behind_end: list[Callable[[], None]] = []
"""What is called when all is closed, since the interpreter ends."""


def _end() -> None:
    """Closes what is open, since the interpreter ends."""
    raised = ends_by_exception()
    for reference in _handles.valuerefs():
        if (handle := reference()) is not None:
            handle._stay()
            if not raised:
                handle._end()
    for function in behind_end:
        function()


# Not each by a finalizer of its own that runs at exit: it would destroy what a thread is in a call of. The oldest of all finalizers
# comes last: those that end a process group use its communicators.
weakref.finalize(library, _end)
_ends.append(_end)


class Handle:
    """An object of the library, destroyed when it is closed, or nobody refers to it any more, and no call uses it."""

    _destroyed_by: str
    _forked = False
    """Whether it is another process's, of which this one was forked."""

    def __init__(self, value: int) -> None:
        self._own(Owned(value))
        self._destroy_with(value)

    def _own(self, handle: Owned) -> None:
        self._handle: Owned | None = handle
        """Its address; None once it is closed, which the library refuses."""
        _handles[next(_numbers)] = self
        _watch(os.getpid())

    def _destroy_with(self, value: int) -> None:
        """Has it destroyed when nobody refers to its address any more."""
        self._when_left(_destroy, getattr(library(), self._destroyed_by), value, os.getpid())

    def _when_left(self, function: Callable[..., None], *arguments: object) -> None:
        """Has a function called when nobody refers to its address any more, unless the process ends before."""
        weakref.finalize(self._handle, function, *arguments).atexit = False

    def _stay(self) -> None:
        """The interpreter ends: has stay what calls use that are under way."""

    def _end(self) -> None:
        """The interpreter ends: closes it. What a call is under way of stays, and the peers hear of the end of the process."""
        self._handle = None

    def close(self) -> None:
        """Gives it back, once calls of other threads are done with it; closing twice is closing once. What was made from
        it stays."""
        self._handle = None

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._handle is None

    def _open(self) -> Owned:
        handle = self._handle
        if handle is None:
            if self._forked:
                raise InvalidArgumentError(
                    f"cannot use a {type(self).__name__}: it was made before a fork; allowed in the process that made it; start processes by "
                    "spawn"
                )
            raise InvalidArgumentError(f"cannot use a {type(self).__name__}: it is closed; make another one")
        return handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
