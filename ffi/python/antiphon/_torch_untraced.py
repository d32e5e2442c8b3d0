"""What torch.compile is to leave alone."""

from __future__ import annotations

import contextlib
from types import FunctionType
from typing import TypeVar

__all__ = ["untraced"]

_Class = TypeVar("_Class", bound=type)


def untraced(kind: _Class) -> _Class:
    """Exempts a class's methods, and what they call, from being compiled. Torch's own code calls them in the middle of compiled
    code, so that compiling DistributedDataParallel failed."""
    # This uses internals of later releases, since importing the public interface takes seconds.
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        for method in vars(kind).values():
            if isinstance(method, FunctionType):
                eval_frame.set_code_exec_strategy(method.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return kind
