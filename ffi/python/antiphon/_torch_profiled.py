"""What PyTorch's profiler is shown of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.profiler import record_function

__all__ = ["profiled"]


def profiled(name: str, call: Callable[[], Any]) -> Any:
    """Makes a call, and returns its work. A running profiler sees it as `antiphon:name`, which ends when the call is over, or
    is in its stream."""
    if not torch.autograd._profiler_enabled():
        return call()
    with record_function(f"antiphon:{name}") as record:
        work = call()
        # This is not the work's own future: that one is completed in its turn, when the profiler may be gone.
        over: Any = torch.futures.Future()
        record._call_end_callbacks_on_future(over)
        work.outcome.before_anybody(lambda: over.set_result(None))
    return work
