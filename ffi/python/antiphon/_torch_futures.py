"""The outcomes of a process group's calls, and the futures of torch that tell them."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import Work

from antiphon import _torch_threads as threads
from antiphon.errors import AntiphonError, InvalidArgumentError

__all__ = ["Chain", "Outcome", "anew", "leave_behind"]

LITTLE = 4096
"""The most bytes of a result that costs little to keep."""

_under_way: set[Outcome] = set()


_Error = TypeVar("_Error", bound=BaseException)


def anew(error: _Error) -> _Error:
    """A copy of an error that may be raised again and again. Each raise makes a traceback longer, and whatever the frames in that
    have stays as long as it does."""
    try:
        copied = copy.copy(error)
    except Exception:  # noqa: BLE001: a class may be made of other things than the error's arguments.
        return error
    copied.__cause__ = error.__cause__
    # The package's own errors say what there is to say; of others it matters where they come from.
    return copied.with_traceback(None if isinstance(error, AntiphonError) else error.__traceback__)


class _Own(threading.local):
    """State of a thread in which futures call back."""

    chain: Chain | None = None
    """The chain for futures that callbacks ask for in this thread."""


_own = _Own()


class Chain:
    """Futures that are completed one after the other, each once the callbacks of those before it have returned."""

    def __init__(self) -> None:
        self._deciding = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._running = False
        # Works that are over: the latest ones with small results, and a few with large results for which nobody has waited.
        self._small: deque[Work] = deque(maxlen=256)
        self._large: deque[Work] = deque(maxlen=4)

    def keep(self, work: Work, result: Any) -> None:
        """Keeps a work that is over until enough later ones are: torch's C++ code may be the only one that still has it, which
        Python does not see. DistributedDataParallel asks more of a work with a small result after it has waited for it."""
        # Not by whether a result is true: a tensor of several numbers is neither, and raises.
        little = result is None or (isinstance(result, list) and (len(result) == 0 or (len(result) == 1 and _is_little(result[0]))))
        (self._small if little else self._large).append(work)

    def waited(self, work: Work) -> None:
        """Lets go of a work with a large result, for which somebody has waited."""
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
            # Callbacks may wait for futures that they ask for; those get a chain of their own, since they must not queue behind
            # this one.
            _own.chain = Chain()
            complete()
            del complete


def _is_little(tensor: Any) -> bool:
    """Whether a tensor holds little memory: its whole storage counts, and one that is part of an autograd graph holds more."""
    if not isinstance(tensor, torch.Tensor) or tensor.grad_fn is not None or tensor.layout != torch.strided:
        return False
    try:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        return bool(storage.nbytes() <= LITTLE)
    except RuntimeError:
        # It wraps another, and has none.
        return False


class Outcome:
    """How a call went, once it is over. A future is made only if somebody asks for one."""

    def __init__(
        self,
        chain: Chain,
        devices: list[Any] | None = None,
        around: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
    ) -> None:
        self._chain, self._devices, self._around = chain, devices, around or contextlib.nullcontext
        self._kept = chain
        self.maker: threading.Thread | None = None
        """The thread that makes the call, if it is not the caller's."""
        self.over = False
        """Whether the call is over."""
        # Held until then. It is a lock and not an event, since every call has one, and events cost more.
        self._going = threading.Lock()
        self._going.acquire()
        self.result: Any = None
        """The call's tensors, once it has succeeded."""
        self.failed: BaseException | None = None
        """What went wrong."""
        # Held while it is decided who completes the future: the one who asks for it, or the one who settles the call.
        self._deciding = threading.Lock()
        self._work: Work | None = None
        self._say: Callable[[], None] | None = None
        self._gate: Any = None
        self._future: Any = None

    def hold(self, work: Work) -> None:
        """Keeps a work until its call is over: torch's C++ code may be the only one that has it, which Python does not see."""
        with self._deciding:
            if not self.over:
                self._work = work
                _under_way.add(self)

    def before_anybody(self, say: Callable[[], None]) -> None:
        """Calls `say` once the call is over, before anybody who waits for it goes on. `say` must not wait."""
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
            # This comes before it counts as over: whoever waits for it may let go of it then.
            if self._work is not None:
                self._kept.keep(self._work, result)
            self.over = True
            gate, self._gate, self._work = self._gate, None, None
            say, self._say = self._say, None
            _under_way.discard(self)
        try:
            if say is not None:
                say()
        finally:  # Whatever goes wrong in it: those who wait would do so for ever.
            self._going.release()
            if gate is not None:
                # The future is not completed here: its callbacks may wait for calls that this thread is to make.
                self._chain.put(lambda: self._complete(gate))

    def leave_behind(self, error: BaseException) -> None:
        """In a process that was forked meanwhile: the call is not its own. Locks are as whatever thread left them."""
        self._deciding, self._going = threading.Lock(), threading.Lock()
        self.failed, self.over = error, True

    def wait(self, seconds: float | None) -> bool:
        """Waits at most so many seconds until the call is over; returns whether it is."""
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
            raise anew(self.failed)
        return self.result

    def future(self) -> Any:
        """A future that is done when the call is over, and has its tensors, or raises what went wrong."""
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
                # What failed may have left no event to wait for.
                if self.failed is None:
                    stack.enter_context(self._around())
            except Exception as error:  # noqa: BLE001: whoever waits for the future gets it.
                self.failed = self.failed or error
            # From the tensors in the result torch knows on which devices those who wait must come after the current stream.
            gate.set_result(self.result if self.failed is None else None)


def leave_behind(error: BaseException) -> None:
    """In a process that was just forked: the calls that were under way fail there, and it needs new threads."""
    threads.leave_behind()
    for outcome in _under_way:
        outcome.leave_behind(error)
    _under_way.clear()
