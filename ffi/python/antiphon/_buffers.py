"""Finds the bytes of an object: a NumPy array, PyTorch tensor, bytearray, or what else offers a buffer by a protocol of Python.

The protocols are tried in this order: the buffer protocol, `__array_interface__`, DLPack; for a GPU's memory
`__cuda_array_interface__`, DLPack. Memory must be contiguous, in C's order.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, NamedTuple

from antiphon._abi import Dtype
from antiphon.errors import InvalidArgumentError, UnsupportedError

__all__ = ["NAMES", "Span", "device_span", "name_of", "span"]


class Span(NamedTuple):
    """Bytes of an object."""

    address: int
    """Where they begin."""
    bytes: int
    """How many they are."""
    dtype: int | None
    """The type of their elements, a number of `antiphon_dtype`; None for a type that can be moved but not reduced."""
    keeps: Any
    """What must live as long as the bytes are used."""
    stream: int | None = None
    """The stream of a GPU that may still write them, as `__cuda_array_interface__` numbers streams."""
    item: int = 1
    """Bytes of an element, if `dtype` is None."""


def _numbers(types: dict[Any, Dtype]) -> dict[Any, int]:
    """The types as plain numbers: `ctypes` needs a microsecond to convert a member of an enumeration."""
    return {name: int(dtype) for name, dtype in types.items()}


NAMES: dict[str, int] = _numbers({
    "float16": Dtype.F16,
    "bfloat16": Dtype.BF16,
    "float32": Dtype.F32,
    "float64": Dtype.F64,
    "int8": Dtype.I8,
    "uint8": Dtype.U8,
    "int32": Dtype.I32,
    "uint32": Dtype.U32,
    "int64": Dtype.I64,
    "uint64": Dtype.U64,
    "float8_e4m3fn": Dtype.F8E4M3,
    "float8_e5m2": Dtype.F8E5M2,
})
"""Types of elements by the names that NumPy, ml_dtypes, PyTorch and JAX have for them."""

_FORMATS = _numbers({
    **dict.fromkeys("e", Dtype.F16),
    **dict.fromkeys("f", Dtype.F32),
    **dict.fromkeys("d", Dtype.F64),
    "b": Dtype.I8,
    "B": Dtype.U8,
    "i": Dtype.I32,
    "I": Dtype.U32,
    "q": Dtype.I64,
    "Q": Dtype.U64,
    "l": Dtype.I64,
    "L": Dtype.U64,
})
"""Native formats of the buffer protocol, where an `l` has 8 bytes."""

_DLPACK = _numbers({
    (0, 8): Dtype.I8,
    (0, 32): Dtype.I32,
    (0, 64): Dtype.I64,
    (1, 8): Dtype.U8,
    (1, 32): Dtype.U32,
    (1, 64): Dtype.U64,
    (2, 16): Dtype.F16,
    (2, 32): Dtype.F32,
    (2, 64): Dtype.F64,
    (4, 16): Dtype.BF16,
})
"""The types by DLPack's codes and bits."""

_ON_HOST = {1, 3, 11}
"""DLPack's devices whose memory the CPU reads and writes: its own, and what CUDA and ROCm have pinned."""

_ON_GPU = {2: 1, 10: 0, 13: 1}
"""DLPack's devices whose memory a GPU reads and writes, CUDA's, ROCm's and CUDA's managed, with the number of the default stream."""

_known: dict[Any, int | None] = {}
"""The types of elements met so far, by the object that an array gives as its dtype."""

_byte = ctypes.c_char
_at = ctypes.addressof
_tuple = tuple.__new__


def name_of(dtype: object) -> str:
    """What an object calls a type of elements: `torch.float16`, `numpy.dtype('float16')` and `np.float16` are `float16`."""
    return str(getattr(dtype, "name", None) or getattr(dtype, "__name__", dtype)).rpartition(".")[2]


def number_of(dtype: object) -> int | None:
    """The number of a type of elements; None for types that cannot be reduced, such as floats in another order of bytes."""
    return NAMES.get(name_of(dtype)) if getattr(dtype, "isnative", True) else None


def span(holder: Any, writable: bool) -> Span:
    """Where an object's bytes are.

    Raises InvalidArgumentError for an object that has none, or none that can be used so, UnsupportedError for memory of a GPU.
    """
    # The fast path, for arrays that may be written and whose type has been met: there are only three microseconds to spend.
    try:
        dtype = _known[holder.dtype]
        bytes = _byte.from_buffer(holder)
        return _tuple(Span, (_at(bytes), holder.nbytes, dtype, bytes, None, holder.itemsize))
    except (KeyError, TypeError, ValueError, AttributeError, BufferError):
        pass
    return _span(holder, writable)


def _span(holder: Any, writable: bool) -> Span:
    if isinstance(holder, Span):
        return holder
    try:
        view = memoryview(holder)
    except (TypeError, ValueError, BufferError):
        pass  # Other protocols may do: numpy has no buffers of bfloat16, torch none at all.
    else:
        return _of_view(holder, view, writable)
    if getattr(holder, "__cuda_array_interface__", None) is not None:
        raise _on_gpu(holder)
    if interface := getattr(holder, "__array_interface__", None):
        return _of_interface(holder, interface, writable)
    if hasattr(holder, "__dlpack__"):
        if int(holder.__dlpack_device__()[0]) not in _ON_HOST:
            raise _on_gpu(holder)
        return _of_dlpack(holder, holder.__dlpack__())
    raise InvalidArgumentError(
        f"cannot use a {type(holder).__name__} as a buffer: allowed NumPy arrays, PyTorch tensors, bytearrays, and "
        "objects with the buffer protocol, DLPack or __array_interface__"
    )


def _on_gpu(holder: object) -> UnsupportedError:
    return UnsupportedError(
        f"cannot use a {type(holder).__name__} in a GPU's memory: the communicator is on the host; copy it there, or make one "
        'with device="cuda"'
    )


def device_span(holder: Any, writable: bool, used_on: int | None = None) -> Span:
    """Where an object's bytes in a GPU's memory are, and the stream that it names. DLPack makes them ready for a stream that it
    is told: for `used_on`, as the driver numbers it, and then this names no stream; without that for the default one, which
    this then names.

    Raises InvalidArgumentError for an object that has none there, or none that can be used so.
    """
    if isinstance(holder, Span):
        return holder
    if interface := getattr(holder, "__cuda_array_interface__", None):
        if interface.get("mask") is not None:
            raise InvalidArgumentError(f"cannot use a {type(holder).__name__} with a mask: give its data")
        own = _of_interface(holder, interface, writable)
        named = interface.get("stream")
        return own if named is None else own._replace(stream=int(named))
    if hasattr(holder, "__dlpack__"):
        default = _ON_GPU.get(int(holder.__dlpack_device__()[0]))
        if default is not None:
            told = default if used_on is None else _told(used_on, default)
            own = _of_dlpack(holder, holder.__dlpack__(stream=told))
            return own._replace(stream=default) if used_on is None else own
    raise InvalidArgumentError(
        f"cannot use a {type(holder).__name__}: the communicator is on a GPU; allowed objects in a GPU's memory with "
        "__cuda_array_interface__ or DLPack"
    )


def _told(native: int, default: int) -> int:
    """DLPack's number for the driver's stream `native`. CUDA's legacy default stream is 1 to both, but the driver also calls it
    0; the default stream of each thread is 2. ROCm's default stream is 0. There the driver's 1 and 2 are the default stream and
    one in order with it, but DLPack allows neither number."""
    return native if native > (2 if default == 0 else 1) else default


def _scattered(holder: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot use a {type(holder).__name__} that is not contiguous in C's order: make a contiguous copy"
    )


def _read_only(holder: object) -> InvalidArgumentError:
    return InvalidArgumentError(f"cannot receive into a {type(holder).__name__} that is read-only: give a writable one")


_NAME = re.compile(":[^:]*:")
"""The name of a field, in a format of the buffer protocol."""


def _has_objects(described: Any) -> bool:
    """Whether a type contains Python objects. `__array_interface__` describes the type by a text, or by a list of fields."""
    if isinstance(described, str):
        return described[1:2] == "O"
    return any(_has_objects(field[1]) for field in described or ())


def _of_objects(holder: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"cannot use a {type(holder).__name__} of Python's objects: their addresses mean nothing to another rank; allowed elements "
        "that are bytes themselves, such as numbers; pickle objects"
    )


class _PyBuffer(ctypes.Structure):
    """Python's `Py_buffer`."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("rest", ctypes.c_void_p * 5),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


def _of_view(holder: Any, view: memoryview, writable: bool) -> Span:
    if not view.c_contiguous:
        raise _scattered(holder)
    if writable and view.readonly:
        raise _read_only(holder)
    raw = _PyBuffer()
    _get_buffer(view, raw, 0)  # Raises what the object raises.
    address = raw.buf or 0
    # The view holds the object's bytes in place from here on.
    _release_buffer(raw)
    format = view.format.lstrip("@=<") if view.format else "B"
    dtype: int | None = _FORMATS.get(format)
    named = getattr(holder, "dtype", None)
    if "O" in _NAME.sub("", format) or getattr(named, "hasobject", False):
        raise _of_objects(holder)
    if named is not None:
        dtype = _known.setdefault(named, number_of(named))
    return Span(address, view.nbytes, dtype, view, item=view.itemsize)


class _DLTensor(ctypes.Structure):
    """DLPack's `DLTensor`, with which a `DLManagedTensor` begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer_of.restype = ctypes.c_void_p


def _of_dlpack(holder: Any, capsule: Any) -> Span:
    # Nobody takes the tensor over, so the capsule itself gives it back.
    tensor = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    shape = [tensor.shape[axis] for axis in range(tensor.ndim)]
    strides = [tensor.strides[axis] for axis in range(tensor.ndim)] if tensor.strides else None
    count = 1
    for size, stride in zip(reversed(shape), reversed(strides or shape), strict=True):
        if strides is not None and size > 1 and stride != count:
            raise _scattered(holder)
        count *= size
    named = NAMES.get(name_of(getattr(holder, "dtype", None)))
    dtype = _DLPACK.get((tensor.code, tensor.bits), named) if tensor.lanes == 1 else None
    item = (tensor.bits * tensor.lanes + 7) // 8
    return Span((tensor.data or 0) + tensor.byte_offset, count * item, dtype, (holder, capsule), item=item)


def _of_interface(holder: Any, interface: dict[str, Any], writable: bool) -> Span:
    data, keeps = interface["data"] or (0, False), holder
    if not isinstance(data, tuple):
        lent = _of_view(holder, memoryview(data), writable)
        data, keeps = (lent.address + interface.get("offset", 0), False), (holder, lent.keeps)
    address, read_only = data
    if writable and read_only:
        raise _read_only(holder)
    named = getattr(holder, "dtype", None)
    if any(map(_has_objects, (interface["typestr"], interface.get("descr")))) or getattr(named, "hasobject", False):
        raise _of_objects(holder)
    # "<f4"; of times, "<M8[s]".
    item = int(interface["typestr"][2:].partition("[")[0])
    count, strides = 1, interface.get("strides")
    for axis in reversed(range(len(interface["shape"]))):
        size = interface["shape"][axis]
        if strides is not None and size > 1 and strides[axis] != count * item:
            raise _scattered(holder)
        count *= size
    dtype = number_of(named) if named is not None else _TYPESTRS.get(interface["typestr"])
    return Span(int(address), count * item, dtype, keeps, item=item)


_TYPESTRS = _numbers({
    "<f2": Dtype.F16,
    "<f4": Dtype.F32,
    "<f8": Dtype.F64,
    "|i1": Dtype.I8,
    "|u1": Dtype.U8,
    "<i4": Dtype.I32,
    "<u4": Dtype.U32,
    "<i8": Dtype.I64,
    "<u8": Dtype.U64,
})
"""Types of `__array_interface__`."""
