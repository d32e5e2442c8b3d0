"""A process group as PyTorch knows it: what it is called, by what store its ranks meet, and which kinds of devices it serves."""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup

__all__ = ["Known", "ignored"]


class Known(ProcessGroup):  # type: ignore[misc]
    """What PyTorch asks of a group besides its calls."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str = "") -> None:
        super().__init__(rank, size)
        self._store, self._rank, self._size, self._timeout = store, rank, size, timeout.total_seconds()
        self._named, self._described = name, ""
        self._of_split = False

    def getBackendName(self) -> str:
        """What the backend is called."""
        return "antiphon"

    _get_backend_name = getBackendName
    name = getBackendName

    # Later releases of PyTorch name a group by these, and find it again.

    def setGroupName(self, name: str) -> None:
        """Gives the group a name, as PyTorch does."""
        self._named = name

    def getGroupName(self) -> str:
        """The group's name; empty before it has one."""
        return self._named

    def setGroupDesc(self, text: str) -> None:
        """Says what the group is for, as PyTorch does."""
        self._described = text

    def getGroupDesc(self) -> str:
        """What the group is for; empty where nobody said."""
        return self._described

    # Releases such as 2.5 name and ask it by these; those of PyTorch's own class fail where there is no backend in C++.
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    # Later releases ask these of a group's backend, which here is the group itself.
    supports_coalescing = False

    @property
    def supports_splitting(self) -> bool:
        """Whether PyTorch may split the group. Not where a device is bound to it: there new groups would be parts of this one, and
        PyTorch's options for those take only backends in C++."""
        return hasattr(ProcessGroup, "split_group") and self.bound_device_id is None

    def get_group_store(self) -> Any:
        """The store by which the group's ranks have met."""
        return self._store

    @property
    def _device_types(self) -> list[Any]:
        """The kinds of devices whose tensors it takes. Empty until PyTorch knows the group, unless that is made by a split: if a group
        that it is about to make has some, its flight recorder may ask for what only backends in C++ have."""
        known = self._of_split or self in dist.distributed_c10d._world.pg_map
        return [torch.device("cpu"), torch.device("cuda")] if known else []


def ignored(options: Any) -> None:
    """Warns of options that somebody gives a group."""
    if options is not None:
        warnings.warn(f"a group of antiphon has no options: pg_options, {type(options).__name__}, change nothing", stacklevel=3)
