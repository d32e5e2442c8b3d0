"""Memory that the ranks of a machine map."""

from __future__ import annotations

import ctypes
from typing import Any

from antiphon._library import Handle, check, library

__all__ = ["Memory"]


class Memory(Handle):
    """Memory of a communicator's device that the ranks of this machine map: calls use it without a copy. It is an array of bytes
    for NumPy, and on a GPU for CuPy: `asarray(memory).view(dtype)`. NumPy's arrays, and calls on streams, keep it: it is freed
    once it is closed and they are gone. On a GPU it is freed once it is closed and calls are done with it, and arrays must not
    be used after that. If it is not closed when the interpreter ends, it stays as long as the process."""

    _destroyed_by = "antiphon_memory_free"

    def __init__(self, value: int, size: int, on_device: bool = False) -> None:
        super().__init__(value)
        self._on_device = on_device
        address = ctypes.c_void_p()
        check(library().antiphon_memory_address(value, address))
        self.size = size
        """Bytes."""
        self.address = address.value or 0
        """Where it begins."""

    def _end(self) -> None:
        """Leaves it as it is: arrays may still use the memory."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory as bytes, if it is on the host."""
        return self._interface(False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory as bytes, if it is on a GPU."""
        return self._interface(True)

    def _interface(self, on_device: bool) -> dict[str, Any]:
        handle = self._open()
        if on_device is not self._on_device:
            raise AttributeError(f"memory on {'a GPU' if self._on_device else 'the host'} has no such interface")
        data: Any = (self.address, False)
        if not on_device:
            # Whoever has this refers to the memory itself, of which this object lets go when it is closed.
            data = (ctypes.c_char * self.size).from_address(self.address)
            data.handle = handle
        return {"version": 3, "shape": (self.size,), "typestr": "|u1", "data": data}
