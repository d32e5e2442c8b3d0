"""How a group's call is made: by itself, or together with others."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

from antiphon._torch_profiled import profiled

__all__ = ["Together", "called"]


class Together(threading.local):
    """The calls that a thread makes together; what another thread calls meanwhile is not part of them."""

    works: list[Any] | None = None
    """The works so far; None while calls are made one by one."""


_Call = TypeVar("_Call", bound=Callable[..., Any])


def called(name: str) -> Callable[[_Call], _Call]:
    """Decorates a call: profilers see it as `name`, and its work joins the others where calls are made together. A refused call
    ends that, since perhaps nobody else will."""

    def decorated(call: _Call) -> _Call:
        @functools.wraps(call)
        def made(group: Any, *given: Any, **named: Any) -> Any:
            together: Together = group._together
            try:
                work = profiled(name, lambda: call(group, *given, **named))
            except BaseException:
                together.works = None
                raise
            if together.works is not None:
                together.works.append(work)
            return work

        return cast("_Call", made)

    return decorated
