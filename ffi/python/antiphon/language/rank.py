"""Ranks, their buffers and their semaphores."""

from __future__ import annotations

from typing import ClassVar

from antiphon import _native
from antiphon._native import BaseBuffer, Rank, Semaphore
from antiphon.language.internal.types import BufferType

__all__ = ["BaseBuffer", "Buffer", "Rank", "Semaphore"]


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
