"""Finds the stage of the language in which a program is written, for calls that mean different things in different stages."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

__all__ = ["caller_is_middle"]

CLASSES = {"Channel", "Loop"}
METHODS = {"group_broadcast", "group_load_reduce", "group_reduce", "group_store", "relaxedSignal", "relaxedWait"}
"""Names that only the middle stage has: whoever uses one writes in it."""


def _uses(code: CodeType, names: dict[str, object]) -> bool:
    if not METHODS.isdisjoint(code.co_names):
        return True
    used = CLASSES.intersection(code.co_names)
    ours = any(getattr(names.get(name), "__module__", "").startswith("antiphon.") for name in used)
    return ours or any(_uses(inner, names) for inner in code.co_consts if isinstance(inner, CodeType))


def caller_is_middle() -> bool:
    """Whether the code that is being run in the author's module that calls uses a name that only the middle stage has."""
    frame: FrameType | None = sys._getframe(1)
    theirs: dict[str, object] | None = None
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if theirs is None and not (module == "antiphon" or module.startswith("antiphon.")):
            theirs = frame.f_globals
        if frame.f_globals is theirs and _uses(frame.f_code, theirs):
            return True
        frame = frame.f_back
    return False
