"""How calls of a process group went, and the futures of torch that say it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import Work

from antiphon import _torch_threads as threads
from antiphon.errors import InvalidArgumentError

__all__ = ["Chain", "Outcome", "leave_behind"]

LITTLE = 4096
"""Bytes that a result holds at most to be one that costs little to keep."""

_under_way: set[Outcome] = set()


class _Own(threading.local):
    """What futures call in this thread."""

    chain: Chain | None = None
    """That of the futures which are asked for there."""


_own = _Own()


class Chain:
    """Futures that are completed one after the other, each when what the ones before call has returned."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False
        # Works that are over: the last ones of small results, and of large ones a few for which nobody has waited.
        self._small: deque[Work] = deque(maxlen=256)
        self._large: deque[Work] = deque(maxlen=4)

    def keep(self, work: Work, result: Any) -> None:
        """Keeps a work that is over until others are: torch's own code may be the only one that has it still, which Python does not
        see. That of DistributedDataParallel has one with a small result, which it asks for more once it has waited."""
        little = not result or (len(result) == 1 and _is_little(result[0]))
        (self._small if little else self._large).append(work)

    def waited(self, work: Work) -> None:
        """Lets go of one with a large result."""
        with contextlib.suppress(ValueError):
            self._large.remove(work)

    def put(self, complete: Callable[[], None]) -> None:
        """Has a future completed in its turn, in a thread that makes no calls of a group."""
        with self._deciding:
            self._waiting.append(complete)
            idle, self._running = not self._running, True
        if idle and not threads.do(self._run):
            self._run()

    def _run(self) -> None:
        while True:
            with self._deciding:
                if not self._waiting:
                    self._running = False
                    return
                complete = self._waiting.popleft()
            # What is called there waits for futures of its own, which must not come behind this one.
            _own.chain = Chain()
            complete()
            del complete


def _is_little(tensor: Any) -> bool:
    """Whether a tensor holds little memory: no more than a little itself, as a part of another, or by how it was made."""
    if not isinstance(tensor, torch.Tensor) or tensor.grad_fn is not None or tensor.layout != torch.strided:
        return False
    storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
    return bool(storage.nbytes() <= LITTLE)


class Outcome:
    """How a call went, once it is over. A future is made where somebody asks for one."""

    def __init__(
        self,
        chain: Chain,
        devices: list[Any] | None = None,
        around: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
    ) -> None:
        self._chain, self._devices, self._around = chain, devices, around or contextlib.nullcontext
        self._kept = chain
        self.maker: threading.Thread | None = None
        """The thread that makes the call, where that is not the caller's."""
        self.over = False
        """Whether the call is over."""
        # Until then; a lock and no event, since each call has one and they cost.
        self._going = threading.Lock()
        self._going.acquire()
        self.result: Any = None
        """The call's tensors, once it has succeeded."""
        self.failed: BaseException | None = None
        """What went wrong."""
        # Held while it is decided who completes the future: who asks for it, or who settles.
        self._deciding = threading.Lock()
        self._work: Work | None = None
        self._say: Callable[[], None] | None = None
        self._gate: Any = None
        self._future: Any = None

    def hold(self, work: Work) -> None:
        """Keeps a work until its call is over: torch's own code may be the only one that has it, which Python does not see."""
        with self._deciding:
            if not self.over:
                self._work = work
                _under_way.add(self)

    def before_anybody(self, say: Callable[[], None]) -> None:
        """Has something said once the call is over, before anybody who waits for it goes on. It waits for nothing."""
        with self._deciding:
            if not self.over:
                self._say = say
                return
        say()

    def waited(self, work: Work) -> None:
        """Somebody has waited for a work."""
        self._kept.waited(work)

    def succeed(self, result: Any) -> None:
        """The call is done."""
        self._settle(result, None)

    def fail(self, error: BaseException) -> None:
        """The call went wrong; whoever says first how it went is believed."""
        self._settle(None, error)

    def _settle(self, result: Any, failed: BaseException | None) -> None:
        with self._deciding:
            if self.over:
                return
            self.result, self.failed = result, failed
            # Before it counts as over: who waits for it then may let go of it.
            if self._work is not None:
                self._kept.keep(self._work, result)
            self.over = True
            gate, self._gate, self._work = self._gate, None, None
            say, self._say = self._say, None
            _under_way.discard(self)
        if say is not None:
            say()
        self._going.release()
        if gate is not None:
            # Not here: what the future calls may wait for calls that this thread is to make.
            self._chain.put(lambda: self._complete(gate))

    def leave_behind(self, error: BaseException) -> None:
        """In a process that was forked meanwhile: the call is not its own. Locks are as whatever thread left them."""
        self._deciding, self._going = threading.Lock(), threading.Lock()
        self.failed, self.over = error, True

    def wait(self, seconds: float | None) -> bool:
        """Waits so many seconds at most until the call is over; whether it is."""
        if self.over:
            return True
        if self.maker is not None and threading.get_ident() == self.maker.ident:
            raise InvalidArgumentError(
                f"cannot wait for a call: saw thread {self.maker.name!r}, which is to make it; allowed any other; wait there"
            )
        if self._going.acquire(timeout=-1 if seconds is None else min(seconds, threading.TIMEOUT_MAX)):
            self._going.release()
        return self.over

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
            self._chain = _own.chain or self._chain
            over = self.over
            if not over:
                self._gate = gate
        if over:
            self._complete(gate)
        return self._future

    def _complete(self, gate: Any) -> None:
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self._around())
            except Exception as error:  # noqa: BLE001: it is whoever's waits for the future.
                self.failed = self.failed or error
            # By the tensors in it torch knows the devices on which those who wait come after the current stream.
            gate.set_result(self.result if self.failed is None else None)


def leave_behind(error: BaseException) -> None:
    """In a process that was just forked: what was under way fails there, and other threads are needed."""
    threads.leave_behind()
    for outcome in _under_way:
        outcome.leave_behind(error)
    _under_way.clear()
