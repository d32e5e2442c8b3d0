"""Where bytes in a GPU's memory are, as objects say it: no GPU is asked."""

import ctypes

import pytest

from antiphon import _abi
from antiphon._arguments import device_queue
from antiphon._buffers import Span, device_span, span
from antiphon.errors import InvalidArgumentError, UnsupportedError
from antiphon.executor import Lane


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


def test_elements_without_a_type_of_ours_have_a_size():
    for holder in (Array(typestr="<i2"), Array(typestr=">f4"), Array(typestr="<c8"), Array(typestr="<M8[s]")):
        own = device_span(holder, True)
        assert (own.bytes, own.dtype, own.item) == (6 * own.item, None, int(holder.__cuda_array_interface__["typestr"][2]))
    assert span((ctypes.c_int16 * 3)(), True)[1:3] == (6, None) and span((ctypes.c_int16 * 3)(), True).item == 2


def test_arrays_on_a_gpu():
    for stream in (None, 1, 77):
        own = device_span(Array(stream=stream), True)
        assert own[:3] == (4096, 24, _abi.Dtype.F32) and own.stream == stream
    assert device_span(Array(strides=(12, 4)), True).bytes == 24
    assert device_span(Array(data=(4096, True)), False).address == 4096
    assert device_span(Array(shape=(0,), data=(0, False)), True).bytes == 0
    given = Span(8, 8, None, None)
    assert device_span(given, True) is given


@pytest.mark.parametrize(
    ("call", "named", "waits"),
    [
        (None, (7, None), [7]),
        (None, (1, 1), [1]),
        (7, (7, 7), []),
        (7, (7, 8), [8]),
        (7, (8, 9), [8, 9]),
        (0, (1, None), []),
        (1, (0, 2), [2]),
    ],
)
def test_the_host_waits_for_no_stream_that_the_call_comes_behind_anyway(call, named, waits):
    class Line:
        _native = call

        def _open(self):
            return "handle"

    waited = []
    parts = [Span(8, 8, None, None, stream) for stream in named]
    line = device_queue(waited.append, None if call is None else Line(), *parts, None)
    assert sorted(waited) == waits and line == (None if call is None else "handle")


@pytest.mark.parametrize(("device", "stream"), [(2, 1), (10, 0), (13, 1)])
def test_tensors_on_a_gpu(device, stream):
    tensor = Tensor(device)
    own = device_span(tensor, True)
    assert own[:3] == (4096 + 16, 12, _abi.Dtype.BF16) and tensor.asked == [own.stream] == [stream]


@pytest.mark.parametrize(
    ("device", "native", "told"),
    [(2, 0, 1), (2, 1, 1), (2, 2, 2), (2, 4096, 4096), (13, 0, 1), (13, 2, 2), (10, 0, 0), (10, 1, 0), (10, 2, 0), (10, 4096, 4096)],
)
def test_tensors_are_made_ready_for_the_stream_of_a_call_that_code_serves(device, native, told):
    tensor, lane = Tensor(device), Lane("handle", native)
    own = lane.span(tensor, True)
    assert own[:3] == (4096 + 16, 12, _abi.Dtype.BF16) and tensor.asked == [told]
    assert lane.queue(None, own, lane.span(Array(stream=native or None), False)) == "handle"


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
        device_span(holder, True)


@pytest.mark.parametrize("holder", [Array(), Tensor(2), Tensor(10)])
def test_memory_of_a_gpu_is_refused_on_the_host(holder):
    with pytest.raises(UnsupportedError, match="the communicator is on the host"):
        span(holder, False)
