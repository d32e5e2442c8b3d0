"""Communicators of a process group whose ranks meet while the process goes on.

The library does not end a meeting before its time limit. So ranks meet in a thread, and whoever waits for that thread may be
told to give up. The thread itself enters a meeting of the library only once the other rank is there; it waits for that in
steps.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from secrets import compare_digest, token_hex
from typing import Any

from antiphon._torch_futures import anew
from antiphon._torch_streams import ABORTED, Limit
from antiphon._torch_threads import Work, begun, ending
from antiphon.communicator import Communicator, UniqueId
from antiphon.errors import AbortedError, AntiphonError, InvalidArgumentError, SystemFailure, TimedOutError

__all__ = ["Meet", "Meeting", "aborted", "agree", "check_room", "destroyed", "forked", "meet", "meet_far", "not_begun", "watch"]

PAUSE = 0.05
"""Seconds between two looks at whether anybody still waits for a rank of this node."""

_DESCRIPTORS = 16
"""The descriptors that a lane may take while its ranks meet; some of them stay open."""

Meet = Callable[[Callable[[], bool]], Communicator]
"""Makes a communicator, if the ranks come; it may ask whether all who waited for it have given up."""


def aborted(why: str = ABORTED) -> AbortedError:
    """The error of calls of a group that was aborted."""
    return AbortedError(f"cannot make a call: {why}; make another one")


def destroyed() -> InvalidArgumentError:
    """The error of calls of a group that was destroyed."""
    return InvalidArgumentError("cannot make a call: its process group was destroyed; make another one")


def forked() -> InvalidArgumentError:
    """The error of calls in a process that was forked from the one that made the group."""
    return InvalidArgumentError("cannot make a call: its process group was made before a fork; start processes by spawn")


class Meeting:
    """A communicator to be, and what became of it."""

    def __init__(self, name: str, meet: Meet, limit: float | None = None) -> None:
        self._name, self._limit = name, Limit(limit)
        self.made: Communicator | None = None
        """The communicator, once its ranks have met."""
        self.given_up = False
        """Never: nothing of it is under way that could be given up."""
        self.broken: BaseException | None = None
        """The first reason why there is no communicator, or why it is of no more use."""
        self._over = threading.Event()
        work = begun()
        try:
            threading.Thread(target=self._meet, args=(meet, work), name=f"antiphon {name} meet", daemon=True).start()
        except BaseException:
            work.end()
            raise

    def _meet(self, meet: Meet, work: Work) -> None:
        try:
            self.made = meet(lambda: self.broken is not None or ending())
            # Of this thread and one that gives up, whichever comes later sees what the other did.
            if self.broken is not None and not self.made.closed:
                self.made.abort(ABORTED)
            self._over.set()
        except BaseException as error:  # noqa: BLE001: the waiting threads raise it.
            self.give_up(error)
        finally:
            work.end()

    def over(self, seconds: float | None) -> bool:
        """Waits at most so many seconds until the ranks have met, or nobody waits for them; returns whether that is so."""
        return self._over.wait(seconds)

    def communicator(self) -> Communicator:
        """The communicator, once its ranks have met; raises the reason if they have not, which may be that the limit is
        over."""
        if not self._over.wait(self._limit.left()):
            self.give_up(not_begun(self._name, self._limit.seconds))
        if self.made is None:
            assert self.broken is not None
            raise anew(self.broken)
        return self.made

    def await_with(self, ask: Callable[[], None]) -> Communicator:
        """The communicator; until it is there `ask` is called again and again, and may end the wait by raising the reason."""
        while not self.over(PAUSE):
            try:
                ask()
            except BaseException as error:
                self.give_up(error)
                raise
        return self.communicator()

    def error(self) -> AntiphonError | None:
        """What broke the communicator; None while it is whole, or not there. Does not wait."""
        made = self.made
        if made is None:
            return None
        # It may be closed at any time.
        with contextlib.suppress(InvalidArgumentError):
            return made.error()
        return None

    def give_up(self, error: BaseException) -> None:
        """Notes the reason why nobody waits any more, or makes new calls; those who wait now raise it."""
        self.broken = self.broken or error
        self._over.set()

    def abort(self, why: str = ABORTED) -> None:
        """Makes those who wait fail, and calls under way."""
        self.give_up(aborted(why))
        if self.made is not None and not self.made.closed:
            self.made.abort(why)

    def close(self) -> None:
        """Makes those who wait fail: the group is destroyed."""
        self.give_up(destroyed())

    def end(self, until: Limit) -> None:
        """Does nothing: nothing is under way that could end."""

    def leave(self) -> None:
        """Gives the communicator back, if there is one."""
        if self.made is not None:
            self.made.close()


def check_room(name: str, others: int) -> None:
    """Refuses a transfer if there may be too few descriptors for its lane beside so many other lanes."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError):  # If it is not known how many are open, a lack shows when ranks meet.
        used = len(os.listdir("/proc/self/fd"))
        if most != resource.RLIM_INFINITY and used + _DESCRIPTORS > most:
            raise SystemFailure(
                f"cannot {name}: saw {used} descriptors open, with {others} pairs of ranks, directions and tags, each of which keeps "
                f"some until the group ends; allowed {most - _DESCRIPTORS}; use few tags, and the same ones again, or raise `ulimit -n`"
            )


def not_begun(name: str, seconds: float | None) -> TimedOutError:
    """The error if the two ranks of a transfer did not meet in time."""
    return TimedOutError(f"cannot {name}: not both ranks had begun within {seconds:g} s; see what the other one does instead")


def meet(
    place: str, password: str, rank: int, limit: float, device: str, given_up: Callable[[], bool], name: str | None
) -> Communicator:
    """The communicator of two ranks of a node, of which one may come long after the other; its calls have the time `limit`,
    and its errors the `name`. Anybody on the node can see the place, but only the two ranks have the password."""
    (_expect if rank == 0 else _come)(f"\0{place}-door", password.encode(), given_up)
    return Communicator.from_place(place, rank, 2, timeout=limit, device=device, name=name)


def _expect(door: str, password: bytes, given_up: Callable[[], bool]) -> None:
    """Returns when the other rank has come to the door and was told that it is open. Others who come are told nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(PAUSE)
        listener.bind(door)
        listener.listen()
        while True:
            _ask(given_up)
            # A rank that has gone away again is waited for like one that has not come; one too slow to speak comes again.
            with contextlib.suppress(TimeoutError, ConnectionError), listener.accept()[0] as guest:
                guest.settimeout(PAUSE)
                if compare_digest(guest.recv(len(password)), password):
                    guest.sendall(b"\0")
                    return


def _come(door: str, password: bytes, given_up: Callable[[], bool]) -> None:
    """Returns when the other rank has opened the door, and said so."""
    pause = 0.001
    while True:
        with contextlib.suppress(ConnectionError, BlockingIOError), socket.socket(socket.AF_UNIX) as way:
            # If others have filled the queue, this does not wait long.
            way.settimeout(PAUSE)
            way.connect(door)
            way.sendall(password)
            if _told(way, given_up):
                return
        _ask(given_up)
        time.sleep(pause)
        pause = min(2 * pause, PAUSE)


def _told(way: socket.socket, given_up: Callable[[], bool]) -> bool:
    """Whether the other side says something before it goes."""
    while True:
        _ask(given_up)
        with contextlib.suppress(TimeoutError):
            return bool(way.recv(1))


def _ask(given_up: Callable[[], bool]) -> None:
    """Raises TimedOutError if nobody waits any more; `given_up` may itself raise the reason."""
    if given_up():
        raise TimedOutError("nobody waits any more")


def meet_far(
    store: Any, key: str, rank: int, limit: float, device: str, given_up: Callable[[], bool], name: str | None
) -> Communicator:
    """The same for ranks of two nodes. They ask the store again and again: a thread that waits in it keeps others of its
    process out."""

    def wait_for(what: str) -> None:
        while not store.add(f"{key} {what}", 0):
            _ask(given_up)
            time.sleep(0.005)

    if rank == 0:
        wait_for("receives")
        store.set(key, bytes(UniqueId.create()).decode())
        store.add(f"{key} sends", 1)
    else:
        store.add(f"{key} receives", 1)
        wait_for("sends")
    return Communicator.from_id(UniqueId(store.get(key)), rank, 2, timeout=limit, device=device, name=name)


def agree(store: Any, rank: int, size: int, ask: Callable[[], None]) -> tuple[UniqueId, str]:
    """The id of a group, and a secret of its ranks, once all ranks have them. `ask` is called first, then again and again until
    then, and may end the wait by raising the reason."""

    def wait_for(what: str, most: int) -> None:
        pause = 0.001
        # As in `meet_far`, a thread that waits in the store keeps others out; it could not be told to give up either.
        while store.add(what, 0) < most:
            ask()
            time.sleep(pause)
            pause = min(2 * pause, PAUSE)

    ask()
    if rank == 0:
        store.set("antiphon", f"{bytes(UniqueId.create()).decode()} {token_hex(16)}")
        store.add("antiphon there", 1)
    wait_for("antiphon there", 1)
    id, secret = store.get("antiphon").decode().split()
    # This key has the secret in its name, like all keys that stay in the store.
    here = f"antiphon {secret} here"
    if rank == 0:
        try:
            wait_for(here, size - 1)
        finally:
            # This comes before any rank goes on: it might use the same store again, and would find a group that is gone.
            for key in ("antiphon there", "antiphon"):
                with contextlib.suppress(RuntimeError):  # There are stores that keep all they have.
                    store.delete_key(key)
    store.add(here, 1)
    wait_for(here, size)
    return UniqueId(id.encode()), secret


def watch(store: Any, key: str, rank: int, size: int, limit: Limit, ask: Callable[[], None]) -> None:
    """Returns when all ranks have called it with the same new key. When the time is over, rank 0's error names the ranks that
    have not, and those of others refer to it. `ask` is called again and again, and may end the wait by raising the reason."""

    def wait_for(what: Callable[[], bool], until: Limit) -> bool:
        pause = 0.001
        while not what():
            if not until.left():
                return False
            ask()
            time.sleep(pause)
            pause = min(2 * pause, PAUSE)
        return True

    def over() -> bool:
        return bool(store.add(f"{key} over", 0))

    store.add(f"{key} {rank}", 1)
    if rank != 0:
        # If rank 0 came later than this rank, it also decides later.
        came = wait_for(over, limit) or (store.add(f"{key} 0", 0) and wait_for(over, Limit(limit.seconds))) or over()
        if not came:
            raise TimedOutError(f"cannot pass the barrier: rank 0 had not come within {limit.seconds:g} s; see what it does instead")
        if store.add(f"{key} over", 0) > 1:
            raise TimedOutError("cannot pass the barrier: rank 0 said that not all ranks had come in time; see there which")
        return
    missing = set(range(1, size))

    def all_there() -> bool:
        missing.difference_update([other for other in missing if store.add(f"{key} {other}", 0)])
        return not missing

    came = wait_for(all_there, limit)
    store.add(f"{key} over", 1 if came else 2)
    if not came:
        named = ", ".join(f"rank {other}" for other in sorted(missing))
        raise TimedOutError(f"cannot pass the barrier: {named} had not come within {limit.seconds:g} s; see what those do instead")
    for other in range(size):
        with contextlib.suppress(RuntimeError):  # There are stores that keep all they have.
            store.delete_key(f"{key} {other}")
