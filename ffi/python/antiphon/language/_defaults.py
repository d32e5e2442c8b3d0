"""Defaults for the arguments that a program leaves out while `jit.compile` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["defaults", "use"]

_DEFAULTS: ContextVar[Mapping[str, Any]] = ContextVar("defaults", default={})


def defaults() -> Mapping[str, Any]:
    """The arguments in use, by the names that CollectiveProgram gives them."""
    return _DEFAULTS.get()


@contextmanager
def use(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Makes these the defaults of programs that are made inside the `with`."""
    token = _DEFAULTS.set(arguments)
    try:
        yield
    finally:
        _DEFAULTS.reset(token)
