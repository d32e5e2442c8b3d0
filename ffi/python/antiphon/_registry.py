"""What is registered with the library: plans, code and a selector, which serve all calls by name of this process, whoever makes
them.

The library calls functions of Python on the threads of whoever makes a call. Such a function has the GIL while it runs, and what
it raises becomes the reason for which the call fails. Functions are kept until the library says that it is done with them.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from antiphon import _abi
from antiphon._arguments import encoded, encoded_list, number
from antiphon._library import at_end, await_end, behind_end, check, library, patience, stay
from antiphon.errors import AntiphonError, InvalidArgumentError

try:
    from antiphon._native import Guarded
except ImportError:  # A source tree of which nothing is compiled.

    class Guarded:  # type: ignore[no-redef]
        """The same, but it does not guard against interrupts that come as it begins."""

        def __init__(self, function: Callable[..., int], otherwise: Callable[[BaseException], int], last: int) -> None:
            self._function, self._otherwise, self._last = function, otherwise, last

        def __call__(self, *arguments: object) -> int:
            try:
                try:
                    return self._function(*arguments)
                except BaseException as raised:
                    return self._otherwise(raised)
            except BaseException:
                return self._last


__all__ = ["choice", "explanation", "listed", "put_code", "put_plan", "set_selector", "terms", "unregister", "words"]

Choose = Callable[[_abi.Question], "str | None"]
Run = Callable[[_abi.CodeCall], None]

_numbers = itertools.count(1)
_kept: dict[int, Callable[..., Any]] = {}
"""The functions that the library may call, by the number that it passes when it calls them."""


def terms(
    name: str,
    *,
    tags: Iterable[str] = (),
    min_bytes: int = 0,
    max_bytes: int = 0,
    dtypes: Iterable[int] = (),
    ops: Iterable[int] = (),
    world: int = 0,
    ranks_per_node: int = 0,
    in_place: bool | None = None,
    root: int | None = None,
) -> _abi.Terms:
    """The terms of something that is registered; 0, None and an empty list limit nothing."""
    made = _abi.Terms(struct_size=ctypes.sizeof(_abi.Terms), name=encoded("name", name))
    lists: dict[str, tuple[ctypes.Array[Any], int]] = {
        "tag": ((named := encoded_list("tag", tags)), len(named) - 1),
        "dtype": ((ctypes.c_int32 * len(kinds := list(dtypes)))(*kinds), len(kinds)),
        "op": ((ctypes.c_int32 * len(numbers := list(ops)))(*numbers), len(numbers)),
    }
    for kind, (values, count) in lists.items():
        setattr(made, f"{kind}s", ctypes.addressof(values))
        setattr(made, f"{kind}_count", count)
    # The structure has only the addresses of these lists, which must therefore live as long.
    made.lists = lists
    made.min_bytes = number("smallest message", min_bytes, 64)
    made.max_bytes = number("largest message", max_bytes, 64)
    made.world, made.ranks_per_node = number("number of ranks", world), number("ranks per node", ranks_per_node)
    made.in_place = _abi.Switch.DEFAULT if in_place is None else _abi.Switch.ON if in_place else _abi.Switch.OFF
    made.has_root, made.root = int(root is not None), number("root", root or 0)
    return made


def put_plan(content: bytes, said: _abi.Terms) -> None:
    """Registers a plan."""
    check(library().antiphon_registry_register_bytes(content, len(content), said))


def put_code(name: str, version: int, collective: str, run: Run, devices: bool, said: _abi.Terms) -> None:
    """Registers a function that serves calls; a call fails by what the function raises."""
    global _pid
    _pid = os.getpid()
    code = _abi.Code(ctypes.sizeof(_abi.Code), encoded("name", name), version, encoded("collective", collective), _run)
    code.destroy, code.serves_devices = _forget, devices
    code.context = number = _keep(run)
    try:
        check(library().antiphon_registry_register_code(code, said))
        _names[name] = number
    except AntiphonError:
        _kept.pop(number, None)
        raise
    except BaseException:  # An interrupt, after which it may or may not be registered.
        _names.setdefault(name, number)
        raise


def unregister(name: str) -> None:
    """Takes a plan or code out."""
    check(library().antiphon_registry_unregister(encoded("name", name)))
    _names.pop(name, None)


def set_selector(choose: Choose | None) -> None:
    """Sets the function that is asked about every call by name, in place of the previous one; it answers a name, or None. The
    call fails by what it raises."""
    global _selects, _pid
    if choose is None:
        check(library().antiphon_registry_set_selector(_abi.SELECT(), None, _abi.DESTROY()))
        _selects = None
    else:
        _pid = os.getpid()
        # This is noted before the selector is set, since an interrupt may come in between.
        before, _selects = _selects, _keep(choose)
        try:
            check(library().antiphon_registry_set_selector(_select, _selects, _forget))
        except AntiphonError:
            _kept.pop(_selects, None)
            _selects = before
            raise


def listed() -> list[tuple[str, str, str]]:
    """All that is registered, by whomever: for each "plan" or "code", its collective, its name."""

    def write(text: Any, room: int, needed: Any) -> int:
        return int(library().antiphon_registry_list(text, room, needed))

    lines = _text(write).splitlines()
    return [(kind, collective, name) for kind, collective, name in (line.split(" ", 2) for line in lines)]


def explanation(communicator: Any, question: _abi.Question) -> str:
    """What would serve a call, why, and what else was considered."""

    def write(text: Any, room: int, needed: Any) -> int:
        return int(library().antiphon_explain(communicator, question, 0, text, room, needed))

    return _text(write)


def choice(question: _abi.Question) -> dict[str, Any]:
    """What would serve a call of no communicator, and what else was considered, as the library's JSON has it."""

    def write(text: Any, room: int, needed: Any) -> int:
        return int(library().antiphon_registry_explain(question, 1, text, room, needed))

    return dict(json.loads(_text(write)))


def _text(write: Callable[[Any, int, Any], int]) -> str:
    """The text that a function of the library writes; the function tells how much room it needs."""
    # More is rarely needed, and each attempt may ask a selector.
    needed = ctypes.c_uint64(1 << 16)
    while True:
        text = ctypes.create_string_buffer(needed.value)
        result = write(text, len(text), needed)
        if result != _abi.Result.BUFFER_TOO_SMALL:
            check(result)
            return text.value.decode("utf-8", "replace")
        check(write(None, 0, needed))


def _keep(function: Callable[..., Any]) -> int:
    number = next(_numbers)
    _kept[number] = function
    return number


_inside: set[object] = set()
"""The calls of Python functions that are under way, an object for each."""


def _called(number: int, what: Any) -> Any:
    """Calls a function and returns its result. The call is counted while it lasts, whenever an interrupt comes."""
    own = object()
    try:
        _inside.add(own)
        return _kept[number](what)
    finally:
        _inside.discard(own)


def _answer(number: int, question: Any, answer: int) -> int:
    name = _called(number, question.contents)
    if name is None:
        return 0
    text = encoded("answer", name) + b"\0"
    if len(text) > _abi.ANSWER_BYTES:
        raise InvalidArgumentError(f"cannot answer {name:.40}…: allowed names of {_abi.ANSWER_BYTES - 1} bytes")
    ctypes.memmove(answer, text, len(text))
    return 1


def _answer_nothing(raised: BaseException) -> int:
    _say(raised)
    return -1


def _serve(number: int, call: Any) -> int:
    _called(number, call.contents)
    return _abi.Result.SUCCESS


def _fail(raised: BaseException) -> int:
    _say(raised)
    return raised.result if isinstance(raised, AntiphonError) else int(_abi.Result.INVALID_ARGUMENT)


def words(raised: BaseException) -> bytes:
    """The reason for which a function of Python failed, for the library: the exception, and the line that raised it."""
    try:
        frames = traceback.extract_tb(raised.__traceback__)
        at = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
        text = f"{type(raised).__name__}: {raised}{at}"
    except BaseException:  # The exception's text may come from Python code, which may fail too, and an interrupt may come.
        text = f"{type(raised).__name__}, which does not say more"
    return text.replace("\0", " ").encode("utf-8", "replace")


def _say(raised: BaseException) -> None:
    library().antiphon_set_last_error(words(raised))


# No exception may get out to C, which would then see an arbitrary number as the result.
_select = _abi.SELECT(Guarded(_answer, _answer_nothing, -1))
_run = _abi.RUN(Guarded(_serve, _fail, int(_abi.Result.INVALID_ARGUMENT)))
_forget = _abi.DESTROY(_kept.pop)
# These outlive the interpreter: a call that is under way when it ends may still call them.
for _thunk in (_select, _run, _forget):
    stay(_thunk)

_names: dict[str, int] = {}
"""Code that was registered from here, with the numbers of its functions."""
_selects: int | None = None
"""The number of the selector that was set from here."""
_pid = os.getpid()


@at_end
def _leave() -> None:
    """Called when Python ends: makes the library call no more Python, and waits a while for threads that are in it, which would
    end the process."""
    # In a process that was forked from the library's, nothing of it may be called.
    if os.getpid() != _pid:
        return
    # What the library has let go of was replaced by others, and is left alone.
    if _selects in _kept:
        set_selector(None)
    for name in [name for name, number in _names.items() if number in _kept]:
        with suppress(InvalidArgumentError):  # Somebody else has taken it out.
            unregister(name)
    await_end(lambda: not _inside, patience())


# Calls that waited for ranks which have just been closed now end, and let go of functions: that needs the interpreter, and would end
# the process after it. On a busy machine it takes a while.
behind_end.append(lambda: await_end(lambda: not _kept or os.getpid() != _pid, patience()))
# The parent's threads, which may be in such calls, do not exist in a forked process.
os.register_at_fork(after_in_child=_inside.clear)
