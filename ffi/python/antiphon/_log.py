"""Lines of the library's log, for the program's `logging`."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading

from antiphon import _abi
from antiphon._library import at_end, check, library, patience
from antiphon.errors import InvalidArgumentError

__all__ = ["log_to"]

_LEVELS: dict[int, int] = {
    _abi.LogLevel.ERROR: logging.ERROR,
    _abi.LogLevel.WARN: logging.WARNING,
    _abi.LogLevel.INFO: logging.INFO,
    _abi.LogLevel.DEBUG: logging.DEBUG,
    _abi.LogLevel.TRACE: logging.DEBUG // 2,
}
_MOST = 4096
"""The most lines that wait."""

_lock = threading.Lock()
"""Held while a logger is set."""
_taker: threading.Thread | None = None
"""Hands lines on. It ends once another logger is set and all lines are handed on."""


def log_to(logger: logging.Logger | None) -> None:
    """Has a logger of `logging` handle the lines of this process's log, in place of the previous one; None has them written to
    standard error again, where they go from the start.

    ANTIPHON_LOG says which lines there are (warnings, unless it is set), the logger and its handlers which of them they take; those of
    the level `trace` have the number 5. A record has no time, host or process in its text: `logging` has its own. A thread of its
    own hands lines on, in their order, so that no call waits for a handler, and a handler may use the package. When 4096 lines wait,
    more are dropped, and a warning says how many. Lines that came before are handed on when this returns, unless handlers take longer
    than five seconds; so are those that came until the interpreter ends, and those of what closes after that go to standard error. In
    a forked process lines go to standard error until it calls this itself, which it may, although it may call nothing else.

    Raises InvalidArgumentError for what is neither a logger, nor an adapter of one, nor None; UnsupportedError in a program in Rust
    that has a logger of its own; and RuntimeError if no thread can be started, after which lines go to standard error.
    """
    global _taker
    if not (logger is None or isinstance(logger, (logging.Logger, logging.LoggerAdapter))):
        raise InvalidArgumentError(
            f"cannot log to {logger!r}: allowed a logging.Logger, a logging.LoggerAdapter or None; use logging.getLogger"
        )
    with _lock:
        before = _taker
        if logger is None:
            check(library().antiphon_set_logger(None, None, _abi.DESTROY()))
            _taker = None
        else:
            queue = ctypes.c_void_p()
            check(library().antiphon_log_queue_create(_MOST, queue))
            taker = threading.Thread(target=_hand_on, args=(queue.value, logger), name="antiphon-log", daemon=True)
            try:
                taker.start()
            except Exception:
                library().antiphon_log_queue_destroy(queue)
                raise
            _taker = taker
    if before is not None and before is not threading.current_thread():
        before.join(patience())


def _hand_on(queue: int, logger: logging.Logger) -> None:
    """Handles the lines of a queue until it has ended. Waiting for one, it does not have the GIL, nor has whoever logs."""
    take, level, size = library().antiphon_log_queue_take, ctypes.c_int32(), ctypes.c_uint64()
    try:
        while True:
            check(take(queue, None, 0, level, size))
            text = ctypes.create_string_buffer(size.value)
            check(take(queue, text, len(text), level, size))
            if not level.value:
                break
            try:
                logger.log(_LEVELS.get(level.value, logging.WARNING), "%s", text.value.decode("utf-8", "replace"))
            except Exception:  # A filter's or a handler's own; the lines behind this one are handed on all the same.
                sys.excepthook(*sys.exc_info())
    finally:
        # If it takes lines still, as when a handler ends this thread, they go to standard error again.
        library().antiphon_log_queue_destroy(queue)


def _forked() -> None:
    """Called in a forked process, which does not have the thread."""
    global _lock, _taker
    _lock, _taker = threading.Lock(), None


os.register_at_fork(after_in_child=_forked)


@at_end
def _end() -> None:
    """The interpreter ends: lines that come later go to standard error."""
    # If it has ended, what takes the lines now is somebody else's.
    if _taker is not None and _taker.is_alive():
        log_to(None)
