"""How calls of a process group went, and the futures of torch that say it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

__all__ = ["Outcome"]

_under_way: set[Work] = set()


class Outcome:
    """How a call went, once it is over. A future is made where somebody asks for one."""

    def __init__(
        self, devices: list[Any] | None = None, around: Callable[[], contextlib.AbstractContextManager[None]] | None = None
    ) -> None:
        self._devices, self._around = devices, around or contextlib.nullcontext
        self.over = threading.Event()
        """Set once the call is over."""
        self.result: Any = None
        """The call's tensors, once it has succeeded."""
        self.failed: BaseException | None = None
        """What went wrong."""
        # Held while it is decided who completes the future: who asks for it, or who settles.
        self._deciding = threading.Lock()
        self._work: Work | None = None
        self._gate: Any = None
        self._future: Any = None

    def hold(self, work: Work) -> None:
        """Keeps a work until its call is over: torch's own code may be the only one that has it, which Python does not see."""
        with self._deciding:
            if not self.over.is_set():
                self._work = work
                _under_way.add(work)

    def succeed(self, result: Any) -> None:
        """The call is done."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """The call went wrong; whoever says first how it went is believed."""
        self._settle(None, error)

    def _settle(self, result: Any, failed: BaseException | None) -> None:
        with self._deciding:
            if self.over.is_set():
                return
            self.result, self.failed = result, failed
            self.over.set()
            gate, work, self._work = self._gate, self._work, None
            if work is not None:
                _under_way.discard(work)
        if gate is not None:
            self._complete(gate)

    def value(self) -> Any:
        """The call's tensors; raises what went wrong."""
        if self.failed is not None:
            raise self.failed
        return self.result

    def future(self) -> Any:
        """What is done when the call is over, and has its tensors, or what went wrong."""
        with self._deciding:
            if self._future is not None:
                return self._future
            gate = torch.futures.Future(**({"devices": self._devices} if self._devices else {}))
            # Not by `set_exception`: code in C++ would take the exception for the tensors.
            self._future = gate.then(lambda _: self.value())
            over = self.over.is_set()
            if not over:
                self._gate = gate
        if over:
            self._complete(gate)
        return self._future

    def _complete(self, gate: Any) -> None:
        with self._around():
            gate.set_result(None)
