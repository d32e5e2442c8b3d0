"""Arguments of calls, checked and put into the form that C takes."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from antiphon import _abi
from antiphon._buffers import Span
from antiphon._library import Owned
from antiphon.errors import InvalidArgumentError

if TYPE_CHECKING:
    from antiphon._streams import Stream

__all__ = [
    "LONGEST_NAME", "common", "config", "device_queue", "element_bytes", "encoded", "encoded_list", "encoded_name", "extents", "item_bytes", "number",
    "put_tags", "queue", "reduced", "signed", "spelled", "unequal"
]  # fmt: skip

_U8 = int(_abi.Dtype.U8)

_P = ParamSpec("_P")
_R = TypeVar("_R")

_SIZES = {0: 2, 1: 2, 2: 4, 3: 8, 4: 1, 5: 1, 6: 4, 7: 4, 8: 8, 9: 8, 10: 1, 11: 1}
"""Bytes of the types of elements."""


def element_bytes(dtype: int) -> int:
    """Bytes of an element of a type."""
    return _SIZES[dtype]


def spelled(**others: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Makes a function also take arguments by other names, those of the format's own package; each is given with the name that
    it has here."""

    def taking(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **given: _P.kwargs) -> _R:
            for other in others.keys() & given.keys():
                if (own := others[other]) in given:
                    raise TypeError(f"{function.__qualname__}() got the argument {own!r} twice, also as {other!r}; give one")
                given[own] = given.pop(other)
            return function(*args, **given)

        return call

    return taking


def number(what: str, value: int, bits: int = 32) -> int:
    """A rank, or another number that C takes as so many bits."""
    whole = _whole(what, value)
    if not 0 <= whole < 1 << bits:
        raise InvalidArgumentError(f"cannot use {what} {whole}: allowed 0 to {(1 << bits) - 1}")
    return whole


def signed(what: str, value: int, bits: int = 32) -> int:
    """A number that C takes as a signed one of so many bits."""
    whole, most = _whole(what, value), (1 << bits - 1) - 1
    if not -most - 1 <= whole <= most:
        raise InvalidArgumentError(f"cannot use {what} {whole}: allowed {-most - 1} to {most}")
    return whole % (1 << bits)


def _whole(what: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise InvalidArgumentError(f"cannot use {what} {value}: saw a {type(value).__name__}, allowed whole numbers") from None


def config(
    timeout: float | None,
    verification: bool,
    process_access: bool,
    wire: str | None,
    interface: str | None,
    reproducible: bool | None,
    device: str | None,
    tags: Iterable[str] | None,
    block_threads: int | None,
    kernels: str | None,
    multicast: bool,
    legacy_ipc: bool | None,
    name: str | None,
) -> _abi.Config:
    """The configuration of a communicator, as C takes it."""
    milliseconds = 0
    if timeout is not None:
        if math.isnan(timeout) or timeout <= 0:
            raise InvalidArgumentError(f"cannot wait for {timeout} seconds: allowed more than 0, and infinity")
        milliseconds = -1 if math.isinf(timeout) else max(1, round(timeout * 1000))
    if block_threads == 0:
        # To C it is what nobody names.
        raise InvalidArgumentError("cannot use block_threads 0: allowed 1 to 512, and None for as many as the plan says")
    made = _abi.Config(
        struct_size=ctypes.sizeof(_abi.Config),
        timeout_ms=milliseconds,
        verification=_abi.Switch.DEFAULT if verification else _abi.Switch.OFF,
        process_access=_abi.Switch.DEFAULT if process_access else _abi.Switch.OFF,
        wire=wire.encode() if wire else None,
        network_interface=interface.encode() if interface else None,
        reproducible=_switch(reproducible),
        device=device.encode() if device else None,
        block_threads=0 if block_threads is None else number("block_threads", block_threads),
        kernels=encoded("kernels", kernels) if kernels else None,
        multicast=_abi.Switch.DEFAULT if multicast is None or multicast else _abi.Switch.OFF,
        legacy_ipc=_switch(legacy_ipc),
        name=encoded_name(name),
    )
    if tags is not None:
        put_tags(made, tags)
    return made


def _switch(said: bool | None) -> _abi.Switch:
    return _abi.Switch.DEFAULT if said is None else _abi.Switch.ON if said else _abi.Switch.OFF


def put_tags(structure: _abi.Config | _abi.Question, tags: Iterable[str]) -> None:
    """Has a structure ask for tags."""
    # The structure has only the list's address, so the list must live as long.
    structure.lists = listed = encoded_list("tag", tags)
    # The address is given even for an empty list: with it no tags are asked for, while null means those of the environment.
    structure.tags, structure.tag_count = ctypes.addressof(listed), len(listed) - 1


def encoded(what: str, said: str) -> bytes:
    """A text for C."""
    if not isinstance(said, str) or "\0" in said:
        raise InvalidArgumentError(f"cannot use {what} {said!r}: allowed texts without a zero")
    try:
        return said.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"cannot use {what} {said!r}: allowed texts without half a character") from None


LONGEST_NAME = 128
"""The most bytes of a communicator's name."""


def encoded_name(name: str | None) -> bytes | None:
    """The name of a communicator for C, or none."""
    return None if name is None else encoded("name", name)


def encoded_list(what: str, said: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    """A list of texts for C, with a null behind them."""
    if isinstance(said, str):
        raise TypeError(f"cannot use {said!r} as {what}s: allowed a list of texts")
    listed = [encoded(what, one) for one in said]
    return (ctypes.c_char_p * (len(listed) + 1))(*listed, None)


def queue(stream: Stream | None, *_: Span | None) -> Owned | None:
    """The handle of a call's stream, for buffers on the host."""
    return None if stream is None else stream._open()


def device_queue(synchronize: Callable[[int], None], stream: Stream | None, *used: Span | None) -> Owned | None:
    """The same for a call on a GPU, after waiting for the streams that its buffers name; not for the call's own, behind which
    it comes anyway."""
    own = None if stream is None else stream._native
    for named in {part.stream for part in used if part is not None and part.stream is not None}:
        # The default stream has two numbers.
        if own is None or (named or 1) != (own or 1):
            synchronize(named)
    return queue(stream, *used)


def reduced(one: Span, other: Span) -> tuple[int, int]:
    """The type of elements of a reduction, and how many the first buffer has."""
    dtype = one.dtype
    if dtype is None or dtype != other.dtype:
        raise _mixed(one, other) if dtype != other.dtype else InvalidArgumentError(
            "cannot reduce elements of this type: allowed floats, and integers of 8, 32 and 64 bits; "
            "view them as a type that is"
        )
    return dtype, one.bytes // _SIZES[dtype]


def common(one: Span, other: Span) -> tuple[int, int]:
    """The type as which the elements of two buffers are moved, and how many of it make an element; elements of no type of ours
    are moved as bytes."""
    if one.dtype is None and other.dtype is None and item_bytes(one) == item_bytes(other):
        return _U8, item_bytes(one)
    if one.dtype is None or one.dtype != other.dtype:
        raise _mixed(one, other)
    return one.dtype, 1


def item_bytes(of: Span) -> int:
    """Bytes of an element; 1 for elements of no bytes."""
    return (of.item or 1) if of.dtype is None else _SIZES[of.dtype]


def _mixed(one: Span, other: Span) -> InvalidArgumentError:
    names = [
        f"others of {item_bytes(part)} bytes" if part.dtype is None else _abi.Dtype(part.dtype).name for part in (one, other)
    ]
    return InvalidArgumentError(f"cannot make a call with elements of two types: saw {names[0]} and {names[1]}; allowed one")


def unequal(call: str, sent: Span, received: Span, sends: int, receives: int) -> InvalidArgumentError:
    allowed = "equal ones"
    if sends > receives:
        allowed = f"a send buffer {sends} times as long"
    elif receives > sends:
        allowed = f"a receive buffer {receives} times as long"
    return InvalidArgumentError(
        f"cannot call {call} with a send buffer of {sent.bytes} bytes and a receive buffer of {received.bytes}: "
        f"allowed {allowed}"
    )


def extents(
    which: str, counts: Sequence[int], offsets: Sequence[int] | None, elements: int, world: int, factor: int
) -> list[ctypes.Array[ctypes.c_uint64]]:
    """Counts and offsets for C, after checking that the blocks lie in a buffer of `elements` elements."""
    counts = [_whole(f"{which}_counts", count) for count in counts]
    if offsets is not None:
        offsets = [_whole(f"{which}_offsets", offset) for offset in offsets]
    else:
        offsets = [sum(counts[:rank]) for rank in range(len(counts))]
    if len(counts) != world or len(offsets) != world:
        raise InvalidArgumentError(
            f"cannot use {which}_counts and offsets for {len(counts)} and {len(offsets)} ranks: allowed {world}"
        )
    for rank, (count, offset) in enumerate(zip(counts, offsets, strict=True)):
        if count < 0 or offset < 0 or (count and offset + count > elements):
            raise InvalidArgumentError(
                f"cannot use {which}_counts for rank {rank}: saw {count} elements from {offset} on, "
                f"allowed what lies in a buffer of {elements}"
            )
    kind = ctypes.c_uint64 * world
    return [kind(*(value * factor for value in values)) for values in (counts, offsets)]


def on_device_of(device: str | None) -> bool:
    """Whether buffers are on a GPU, decided as the library does."""
    return not (device or os.environ.get("ANTIPHON_DEVICE") or "host").startswith("host")
