"""What can go wrong when ranks run something together; every error of the runtime is an `AntiphonError`."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AbortedError",
    "AntiphonError",
    "FileError",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPlanError",
    "MismatchError",
    "PeerLostError",
    "PlanRefutedError",
    "RendezvousError",
    "SystemFailure",
    "TimedOutError",
    "UnsupportedError",
]


class AntiphonError(RuntimeError):
    """Something that ranks do together could not be done; the text says what was seen and what is allowed."""

    result: ClassVar[int] = 14
    """Its number in the C interface, an `antiphon_result`."""

    peer: int | None = None
    """The rank that it blames: the one that is lost, has aborted (this one, if it did), has freed what a call needs, or called something
    else. It is the rank's number on the communicator of the call; None if it blames none, or several."""


class InvalidArgumentError(AntiphonError, ValueError):
    """An argument is wrong, or an object is closed; nothing was done."""

    result = 1


class InvalidPlanError(AntiphonError, ValueError):
    """A plan cannot be read, is not valid, or is for another number of ranks."""

    result = 3


class PlanRefutedError(InvalidPlanError):
    """A plan is shown to go wrong."""

    result = 4


class UnsupportedError(AntiphonError, NotImplementedError):
    """Nothing here does what was asked for."""

    result = 5


class FileError(AntiphonError, OSError):
    """A file cannot be read."""

    result = 6


class SystemFailure(AntiphonError):
    """Memory is exhausted, or the device or the system refused something."""

    result = 7


class RendezvousError(AntiphonError, ConnectionError):
    """The ranks could not meet, or could not talk to each other."""

    result = 8


class TimedOutError(AntiphonError, TimeoutError):
    """A wait took longer than the time limit. The communicator is of no more use."""

    result = 9


class MismatchError(AntiphonError):
    """Ranks called different things. The communicator is of no more use."""

    result = 10


class PeerLostError(AntiphonError, ConnectionError):
    """A peer died, or has left, or cannot be reached any more. The communicator is of no more use for what needs that peer; the other
    ranks may go on with a `subset` of it."""

    result = 11


class AbortedError(AntiphonError):
    """A rank aborted the communicator, which is of no more use."""

    result = 12


class InternalError(AntiphonError):
    """A fault of the library itself; please report it."""

    result = 14


BY_RESULT: dict[int, type[AntiphonError]] = {
    kind.result: kind
    for kind in (
        InvalidArgumentError,
        InvalidPlanError,
        PlanRefutedError,
        UnsupportedError,
        FileError,
        SystemFailure,
        RendezvousError,
        TimedOutError,
        MismatchError,
        PeerLostError,
        AbortedError,
        InternalError,
    )
}
"""The class of a result's errors."""
BY_RESULT[2] = InvalidArgumentError
