"""The collectives as functions: over the communicator of the environment, unless one is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.communicator import Communicator, Op, Stream, default

__all__ = [
    "all_gather",
    "all_gather_v",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "barrier",
    "broadcast",
    "gather",
    "receive",
    "reduce",
    "reduce_scatter",
    "scatter",
    "send",
    "send_receive",
]

def all_reduce(
    send: Any,
    receive: Any = None,
    op: Op = Op.sum,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.all_reduce`: gives every rank the reduction of all ranks' elements."""
    return (communicator or default()).all_reduce(send, receive, op, stream=stream)


def all_gather(
    send: Any, receive: Any, *, communicator: Communicator | None = None, stream: Stream | None = None
) -> Any:
    """As `Communicator.all_gather`: gives every rank the elements of all, in rank order."""
    return (communicator or default()).all_gather(send, receive, stream=stream)


def reduce_scatter(
    send: Any,
    receive: Any = None,
    op: Op = Op.sum,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.reduce_scatter`: gives rank r the reduction of all ranks' block r."""
    return (communicator or default()).reduce_scatter(send, receive, op, stream=stream)


def all_to_all(
    send: Any, receive: Any = None, *, communicator: Communicator | None = None, stream: Stream | None = None
) -> Any:
    """As `Communicator.all_to_all`: exchanges blocks: block r of rank s becomes block s of rank r."""
    return (communicator or default()).all_to_all(send, receive, stream=stream)


def all_to_all_v(
    send: Any,
    send_counts: Sequence[int],
    receive: Any,
    receive_counts: Sequence[int],
    *,
    communicator: Communicator | None = None,
    send_offsets: Sequence[int] | None = None,
    receive_offsets: Sequence[int] | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.all_to_all_v`: exchanges blocks whose lengths may differ."""
    return (communicator or default()).all_to_all_v(
        send, send_counts, receive, receive_counts, send_offsets=send_offsets, receive_offsets=receive_offsets, stream=stream
    )


def all_gather_v(
    send: Any,
    receive: Any,
    receive_counts: Sequence[int],
    *,
    communicator: Communicator | None = None,
    receive_offsets: Sequence[int] | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.all_gather_v`: gives every rank the elements of all, where ranks may send different numbers of them."""
    return (communicator or default()).all_gather_v(
        send, receive, receive_counts, receive_offsets=receive_offsets, stream=stream
    )


def broadcast(
    buffer: Any, root: int = 0, *, communicator: Communicator | None = None, stream: Stream | None = None
) -> Any:
    """As `Communicator.broadcast`: gives every rank the root's buffer."""
    return (communicator or default()).broadcast(buffer, root, stream=stream)


def reduce(
    send: Any,
    receive: Any = None,
    op: Op = Op.sum,
    root: int = 0,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.reduce`: gives the root the reduction of all ranks' elements."""
    return (communicator or default()).reduce(send, receive, op, root, stream=stream)


def gather(
    send: Any,
    receive: Any = None,
    root: int = 0,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.gather`: gives the root the elements of all, in rank order."""
    return (communicator or default()).gather(send, receive, root, stream=stream)


def scatter(
    send: Any,
    receive: Any = None,
    root: int = 0,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.scatter`: gives rank r block r of the root's elements."""
    return (communicator or default()).scatter(send, receive, root, stream=stream)


def send(buffer: Any, peer: int, *, communicator: Communicator | None = None, stream: Stream | None = None) -> None:
    """As `Communicator.send`: sends the buffer to a peer."""
    (communicator or default()).send(buffer, peer, stream=stream)


def receive(buffer: Any, peer: int, *, communicator: Communicator | None = None, stream: Stream | None = None) -> Any:
    """As `Communicator.receive`: receives into the buffer what a peer sends."""
    return (communicator or default()).receive(buffer, peer, stream=stream)


def send_receive(
    send: Any,
    dest: int,
    receive: Any,
    source: int,
    *,
    communicator: Communicator | None = None,
    stream: Stream | None = None,
) -> Any:
    """As `Communicator.send_receive`: sends a buffer to one peer while it receives into another from a second."""
    return (communicator or default()).send_receive(send, dest, receive, source, stream=stream)


def barrier(communicator: Communicator | None = None) -> None:
    """As `Communicator.barrier`: returns once all ranks have called it."""
    (communicator or default()).barrier()
