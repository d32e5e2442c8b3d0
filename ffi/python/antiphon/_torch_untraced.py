"""What torch.compile is to leave alone."""

from __future__ import annotations

import contextlib
from types import FunctionType
from typing import TypeVar

__all__ = ["untraced"]

_Class = TypeVar("_Class", bound=type)


def untraced(kind: _Class) -> _Class:
    """A class whose methods are never compiled, nor what they call. Torch's own code calls them in the middle of what is: to compile
    DistributedDataParallel failed."""
    # By what later releases have for it: what is public takes seconds to import.
    with contextlib.suppress(ImportError, AttributeError):
        from torch._C._dynamo import eval_frame

        skip = eval_frame._FrameAction.SKIP
        for method in vars(kind).values():
            if isinstance(method, FunctionType):
                eval_frame.set_code_exec_strategy(method.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return kind
