"""Finds and loads libantiphon.so, which owns all communication state of a process.

A process has only one: if something has loaded it already (a program that links it, the drop-in for NCCL), that one serves
Python too. Otherwise the file `ANTIPHON_LIB_PATH` is loaded, or else the one that the package brings.
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
    # Type checkers bring this themselves; `typing` has it since Python 3.11.
    from typing_extensions import Self

__all__ = [
    "PATIENCE", "Handle", "Owned", "at_end", "await_end", "behind_end", "check", "ends_by_exception", "failure",
    "library", "obtained", "patience", "stay"
]  # fmt: skip

SONAME = f"libantiphon.so.{_abi.MAJOR}"
OWN = Path(__file__).parent / "lib" / SONAME
"""The library that the package brings."""
PATIENCE = 5
"""Seconds that calls under way have to end."""

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
    error = BY_RESULT.get(result, InternalError)(text)
    peer = library().antiphon_last_error_peer()
    error.peer = peer if peer >= 0 else None
    return error


def check(result: int) -> None:
    """Raises the error of a result that is not success."""
    if result:
        raise failure(result)


def _destroy(function: Callable[[int], int], value: int, pid: int) -> None:
    # In a process that was forked from the one that uses the library, no function of the library may be called.
    if os.getpid() == pid and not _raised:
        function(value)


def obtained(make: Callable[[ctypes.c_void_p], int], destroyed_by: str) -> int:
    """The object that a function of the library makes, which may take long. If an interrupt has come meanwhile, the object is
    destroyed, since nobody gets it."""
    at = ctypes.c_void_p()
    try:
        check(make(at))
        return at.value or 0
    except BaseException:
        if at.value:
            getattr(library(), destroyed_by)(at.value)
        raise


_ends: list[Callable[[], None]] = []
"""The functions that are called when the interpreter ends; the last one first."""


def at_end(function: Callable[[], None]) -> Callable[[], None]:
    """Makes a function be called when the interpreter ends, also in processes of multiprocessing, which may end without running
    exit handlers. It may be called twice."""
    _ends.append(function)
    return atexit.register(function)


_raised = False
"""Whether the function that this process ran for multiprocessing raised an error, so that the process ends."""


def _is_spawned() -> bool:
    started = sys.modules.get("multiprocessing.process")
    if started is None or started.parent_process() is None:
        return False
    import multiprocessing

    return multiprocessing.get_start_method(allow_none=True) == "spawn"


_spawned = _is_spawned()
"""Whether this is a process of multiprocessing that was spawned, so that it ends as its interpreter does. It is found out now,
before the program may choose another start method."""


@functools.cache
def _watch(pid: int) -> None:
    """In a process of multiprocessing, arranges for a look whether what it runs has raised an error, since the interpreter then
    ends as if all were well. A forked one ends without the interpreter's exit handlers, so this also arranges that its objects
    are ended."""
    started = sys.modules.get("multiprocessing.process")
    if started is not None and started.parent_process() is not None:
        from multiprocessing import util

        # This comes before all other finalizers. Since Python 3.13 an error that was raised can no longer be seen in a
        # finalizer.
        util.Finalize(None, _look, exitpriority=sys.maxsize)
        with suppress(AttributeError, RuntimeError):  # It is internal and may be missing, and the process may be ending.
            threading._register_atexit(_look)  # type: ignore[attr-defined]
        if not _spawned:
            # After the processes that this one waits for have ended.
            util.Finalize(None, _end_here, exitpriority=-1)


def _look() -> None:
    global _raised
    started = sys.modules["multiprocessing.process"]
    # The frame that runs this process, and not one that ran the process from which it was forked.
    frame: FrameType | None = sys._getframe()
    runs, this = started.BaseProcess._bootstrap.__code__, started.current_process()
    while frame is not None and not (frame.f_code is runs and frame.f_locals.get("self") is this):
        frame = frame.f_back
    if frame is None:
        return
    error = sys.exc_info()[1]
    # The frame has an exit status once it has caught an error, or there was none.
    status = frame.f_locals.get("exitcode", error.code if isinstance(error, SystemExit) else error is not None)
    _raised = bool(status)


def _end_here() -> None:
    # Threads that the process waits for after this may still make calls.
    main = threading.current_thread()
    if not any(thread is not main and not thread.daemon for thread in threading.enumerate()):
        for function in reversed(_ends):
            function()


class Owned(ctypes.c_void_p):
    """An object's address. A call that has it as an argument refers to it, so the object is not destroyed during the call."""


_numbers = itertools.count()
_handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
"""The handles that somebody still refers to."""


def _leave_behind() -> None:
    """Called in a forked process: closes here what its parent made, and goes on using."""
    global _spawned
    _spawned = False
    for reference in _handles.valuerefs():
        if (handle := reference()) is not None:
            handle._forked, handle._handle = True, None


os.register_at_fork(after_in_child=_leave_behind)


def ends_by_exception() -> bool:
    """Whether the program ends by an exception that it did not catch. Then its ranks do not leave before the process ends: an
    interpreter may take seconds to end, and whoever started the ranks should see this one fail before those that miss it."""
    return _raised or (getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1"))


def patience() -> float:
    """Seconds that calls under way have to end when the interpreter does: fewer after an exception, of which others should
    learn soon."""
    return 0.5 if ends_by_exception() else PATIENCE


def await_end(over: Callable[[], bool], seconds: float) -> None:
    """Waits at most `seconds` until something is over."""
    until = time.monotonic() + seconds
    while not over() and time.monotonic() < until:
        time.sleep(0.001)


def stay(object: object) -> None:
    """Makes an object outlive the interpreter."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(object))


behind_end: list[Callable[[], None]] = []
"""The functions that are called when all is closed because the interpreter ends."""


def _end() -> None:
    """Called when the interpreter ends: closes what is open."""
    raised = ends_by_exception()
    for reference in _handles.valuerefs():
        if (handle := reference()) is not None:
            handle._stay()
            if not raised:
                handle._end()
    for function in behind_end:
        function()


# Handles have no finalizers that run at exit: those would destroy objects that threads use in calls. This one is the oldest, so
# it comes last: the finalizers that end process groups use communicators.
weakref.finalize(library, _end)
_ends.append(_end)


class Handle:
    """An object of the library. It is destroyed once it is closed, or nobody refers to it any more, and no call uses it."""

    _destroyed_by: str
    _forked = False
    """Whether it belongs to the process from which this one was forked."""

    def __init__(self, value: int) -> None:
        self._own(Owned(value))
        self._destroy_with(value)

    def _own(self, handle: Owned) -> None:
        self._handle: Owned | None = handle
        """Its address; None once it is closed."""
        _handles[next(_numbers)] = self
        _watch(os.getpid())

    def _destroy_with(self, value: int) -> None:
        """Makes it be destroyed when nobody refers to its address any more."""
        self._when_left(_destroy, getattr(library(), self._destroyed_by), value, os.getpid())

    def _when_left(self, function: Callable[..., None], *arguments: object) -> None:
        """Makes a function be called when nobody refers to its address any more, unless the process ends before."""
        weakref.finalize(self._handle, function, *arguments).atexit = False

    def _stay(self) -> None:
        """Called when the interpreter ends: makes what calls under way use outlive it."""

    def _end(self) -> None:
        """Called when the interpreter ends: closes it. An object that a call uses stays, and the peers notice the end of the
        process."""
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
