"""Ranks, their buffers and their semaphores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar

from antiphon import _native
from antiphon._native import BaseBuffer, Semaphore
from antiphon.language.internal.globals import get_program
from antiphon.language.internal.types import (
    BufferType,
    ChannelType,
    Chunk,
    DataAccessType,
    Instruction,
    ReduceOperationType,
    SyncType,
)
from antiphon.language.thread_block_group import ThreadBlockGroup

# The types that ranks take and return are here too: programs import them from here, often by star.
__all__ = [
    "BaseBuffer",
    "Buffer",
    "BufferType",
    "ChannelType",
    "Chunk",
    "DataAccessType",
    "Instruction",
    "Rank",
    "ReduceOperationType",
    "Semaphore",
    "SyncType",
    "ThreadBlockGroup",
    "get_program",
]


class Buffer(_native.Buffer):
    """`size` chunks of a rank's scratch, after what was handed out before; `buffer[a:b]` is a Chunk of it.

    Raises RuntimeError outside of a program and for a rank that it does not have, ValueError for a negative size.
    The class also names the buffers: `Buffer.input` is BufferType.input, and so on.
    """

    __slots__ = ()

    input: ClassVar[BufferType] = BufferType.input
    output: ClassVar[BufferType] = BufferType.output
    scratch: ClassVar[BufferType] = BufferType.scratch
    intermediate: ClassVar[BufferType] = BufferType.scratch


def _copy(dst_chunk: Chunk, src_chunk: Chunk, tb: int = 0, **options: Any) -> None:
    """Copies a chunk within the rank that both are of."""
    Rank(dst_chunk.rank).copy(dst_chunk, src_chunk, tb, **options)


def _reduce(
    dst_chunk: Chunk, src_chunk: Chunk, op: ReduceOperationType | str | None = None, tb: int = 0, **options: Any
) -> None:
    """Adds `src_chunk` to `dst_chunk`, both of one rank; `op` is the operation."""
    if op is not None:
        options["op"] = op
    Rank(dst_chunk.rank).reduce(dst_chunk, src_chunk, tb, **options)


def _semaphore(
    rank: int | Rank | None = None, size: int | None = None, initial_value: int = 0, tag: object = None
) -> Semaphore:
    """A semaphore of a rank that starts at `initial_value`; `size` is the most it is meant to hold."""
    if size is not None and size < max(initial_value, 0):
        raise ValueError(
            f"cannot make a semaphore of size {size} that starts at {initial_value}: size is a capacity; give "
            "Semaphore(rank, initial_value)"
        )
    return Semaphore(rank, initial_value, tag=tag)


class _Forms(type):
    """The middle stage's calls on the class `Rank` itself: the rank is that of the chunks.

    They are properties of the class of `Rank`, so that a rank's own methods, called far more often, stay what they are.
    """

    @property
    def copy(cls) -> Callable[..., None]:
        return _on_class(cls, _copy, _native.Rank.copy)

    @property
    def reduce(cls) -> Callable[..., None]:
        return _on_class(cls, _reduce, _native.Rank.reduce)

    @property
    def Semaphore(cls) -> Callable[..., Semaphore]:
        return _semaphore


def _on_class(cls: type, form: Callable[..., None], method: Callable[..., None]) -> Callable[..., None]:
    def call(*args: Any, **kwargs: Any) -> None:
        # With a rank as first argument this is the method, not yet bound.
        (method if args and isinstance(args[0], cls) else form)(*args, **kwargs)

    call.__name__ = call.__qualname__ = form.__name__[1:]
    call.__doc__ = form.__doc__
    return call


class Rank(_native.Rank, metaclass=_Forms):
    """A rank of the current program: its buffers, and operations that concern no other rank.

    Raises RuntimeError outside of a program and for a rank that it does not have.

    Operations take `tb`, the thread block that runs them, or `tb_group`, a ThreadBlockGroup whose blocks share them;
    with both, the block `tb` of the group does its slice. Without either they raise RuntimeError, as they do for chunks
    of other ranks and of different sizes; in a program of the language's middle stage they run on block 0.

    On the class, `Rank.copy(dst_chunk, src_chunk, tb=0)` and `Rank.reduce(dst_chunk, src_chunk, op="sum", tb=0)` are of
    the chunks' rank, and `Rank.Semaphore(rank=, size=, initial_value=0, tag=)` makes a semaphore.
    """

    __slots__ = ()


class _Module(ModuleType):
    """This module, which can be called: the package's `rank` is both the module and the oldest stage's function."""

    def __call__(self, rank: int) -> Any:
        from antiphon.language.legacy import rank as function

        return function(rank)


sys.modules[__name__].__class__ = _Module
