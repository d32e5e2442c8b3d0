"""The oldest stage's module of buffers."""

from antiphon.language.rank import BaseBuffer, Buffer

__all__ = ["BaseBuffer", "Buffer"]
