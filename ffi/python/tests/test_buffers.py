"""Where bytes in a GPU's memory are, as objects say it: no GPU is asked."""

import ctypes

import pytest

from antiphon import _abi
from antiphon._buffers import Span, device_span, span
from antiphon.errors import InvalidArgumentError, UnsupportedError


class Array:
    """What CuPy would say of an array."""

    def __init__(self, **more):
        said = {"version": 3, "shape": (2, 3), "typestr": "<f4", "data": (4096, False), "strides": None, "stream": None}
        self.__cuda_array_interface__ = {**said, **more}


class Tensor:
    """What PyTorch would lend of a tensor."""

    class Raw(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
            ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
            ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
        ]  # fmt: skip

    def __init__(self, device):
        self.device, self.asked = device, []
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        self.raw = self.Raw(4096, device, 0, 2, 4, 16, 1, self.shape, None, 16)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.raw), b"dltensor", None)


def on_device(holder, writable=True):
    """The bytes, and the streams that were waited for."""
    waited = []
    return device_span(holder, writable, waited.append), waited


def test_arrays_on_a_gpu():
    for stream, waits in ((None, []), (1, [1]), (77, [77])):
        own, waited = on_device(Array(stream=stream))
        assert own[:3] == (4096, 24, _abi.Dtype.F32) and waited == waits
    assert on_device(Array(strides=(12, 4)))[0].bytes == 24
    assert on_device(Array(data=(4096, True)), False)[0].address == 4096
    assert on_device(Array(shape=(0,), data=(0, False)))[0].bytes == 0
    given = Span(8, 8, None, None)
    assert on_device(given) == (given, [])


@pytest.mark.parametrize(("device", "stream"), [(2, 1), (10, 0), (13, 1)])
def test_tensors_on_a_gpu(device, stream):
    tensor = Tensor(device)
    own, waited = on_device(tensor)
    assert own[:3] == (4096 + 16, 12, _abi.Dtype.BF16) and tensor.asked == waited == [stream]


@pytest.mark.parametrize(
    ("holder", "part"),
    [
        (bytearray(8), "on a GPU"),
        (Tensor(1), "on a GPU"),
        (None, "on a GPU"),
        (Array(strides=(4, 8)), "not contiguous"),
        (Array(data=(4096, True)), "read-only"),
        (Array(mask=Array()), "a mask"),
    ],
)
def test_what_a_gpu_cannot_use_is_refused(holder, part):
    with pytest.raises(InvalidArgumentError, match=part):
        on_device(holder)


@pytest.mark.parametrize("holder", [Array(), Tensor(2), Tensor(10)])
def test_memory_of_a_gpu_is_refused_on_the_host(holder):
    with pytest.raises(UnsupportedError, match="the communicator is on the host"):
        span(holder, False)
