"""A stand-in for what PyTorch with CUDA has: tensors in a device's memory, streams, events and futures, over the driver's calls.

The simulated driver's device memory is mapped by the process, so that PyTorch's own operations work on it. They are made in the
current stream's order: the host waits for it first. `stand_in` puts all this in PyTorch's place.
"""

import ctypes
import os
import threading

import torch
import torch.distributed
from torch.utils._pytree import tree_flatten, tree_map

driver = ctypes.CDLL(os.environ["ANTIPHON_CUDA_LIB"])
_own = threading.local()
_context = ctypes.c_void_p()
recorded = []
"""What was said by `record_stream`: addresses of tensors and streams."""
waits = []
"""Streams for which the host waited on its own account."""

# Answered from what the tensor is, without its memory.
_FACTS = {
    "numel", "element_size", "is_contiguous", "data_ptr", "size", "dim", "detach", "view_as", "view", "stride", "is_complex",
    "new_empty", "__get__", "requires_grad_", "__len__", "is_floating_point", "nelement", "storage_offset",
    "is_conj", "is_neg", "as_strided", "storage", "untyped_storage",
}  # fmt: skip


def cuda(name, *arguments):
    driver.cuCtxSetCurrent(_context)
    result = getattr(driver, name)(*arguments)
    assert result == 0, (name, result)


class Stream:
    """`torch.cuda.Stream`: one that the default stream does not wait for."""

    def __init__(self, device=None, native=None):
        if native is None:
            made = ctypes.c_void_p()
            cuda("cuStreamCreate", ctypes.byref(made), 1)
            native = made.value
        self.cuda_stream = native

    def wait_event(self, event):
        cuda("cuStreamWaitEvent", ctypes.c_void_p(self.cuda_stream), event.native, 0)

    def synchronize(self):
        waits.append(self.cuda_stream)
        cuda("cuStreamSynchronize", ctypes.c_void_p(self.cuda_stream))


class Event:
    """`torch.cuda.Event`."""

    def __init__(self):
        self.native = ctypes.c_void_p()
        cuda("cuEventCreate", ctypes.byref(self.native), 2)

    def record(self, stream):
        cuda("cuEventRecord", self.native, ctypes.c_void_p(stream.cuda_stream))

    def query(self):
        result = driver.cuEventQuery(self.native)
        assert result in (0, 600), result
        return result == 0

    def synchronize(self):
        waits.append(self)
        cuda("cuEventSynchronize", self.native)


class Streamed:
    """`torch.cuda.stream`."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before = current_stream()
        _own.stream = self.stream

    def __exit__(self, *_):
        _own.stream = self.before


def current_stream(device=None):
    if not hasattr(_own, "stream"):
        _own.stream = Stream(native=0)
    return _own.stream


class Future(torch.futures.Future):
    """A future that has devices: streams of those who wait come after the one that is current when it is given tensors of these."""

    def __init__(self, *, devices=None):
        super().__init__()
        self.devices, self.event = devices, None

    def set_result(self, result):
        # What has no tensors is of no device, and orders nothing.
        if self.devices and any(isinstance(each, Tensor) for each in tree_flatten(result)[0]):
            self.event = Event()
            self.event.record(current_stream())
        super().set_result(result)

    def then(self, callback):
        made = Future(devices=self.devices)

        def go_on(done):
            # Whichever thread comes to it, and whatever is in its stream.
            stream = Stream()
            if self.event:
                stream.wait_event(self.event)
            with Streamed(stream):
                try:
                    made.set_result(callback(done))
                except Exception as error:
                    made.set_exception(error)

        self.add_done_callback(go_on)
        return made

    def wait(self):
        result = super().wait()
        if self.event:
            current_stream().wait_event(self.event)
        return result


class Tensor(torch.Tensor):
    """A tensor in the device's memory."""

    gpu = None

    @property
    def device(self):
        return self.gpu

    @property
    def is_cuda(self):
        return True

    def record_stream(self, stream):
        recorded.append((self.data_ptr(), stream.cuda_stream))

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function.__name__ not in _FACTS:
            cuda("cuStreamSynchronize", ctypes.c_void_p(current_stream().cuda_stream))
        with torch._C.DisableTorchFunction():
            return tree_map(_placed, function(*args, **(kwargs or {})))


def _placed(value):
    """What an operation gave: a part of the device's memory, or put there."""
    if not isinstance(value, torch.Tensor) or isinstance(value, Tensor):
        return value
    kind = ctypes.c_uint32()
    known = driver.cuPointerGetAttribute(ctypes.byref(kind), 2, ctypes.c_uint64(value.data_ptr())) == 0
    return value.as_subclass(Tensor) if known and kind.value == 2 else gpu(value)


def gpu(tensor):
    """A copy of a tensor in the device's memory."""
    address, size = ctypes.c_uint64(), max(1, tensor.numel() * tensor.element_size())
    cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
    memory = (ctypes.c_char * size).from_address(address.value)
    with torch._C.DisableTorchFunction():
        bytes = torch.frombuffer(memory, dtype=torch.uint8)
        own = bytes[: size if tensor.numel() else 0].view(tensor.dtype).view(tensor.shape)
        own.copy_(tensor)
        return own.as_subclass(Tensor)


def stand_in(device):
    """Puts all this in PyTorch's place; this process's GPU is the one of that number."""
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(_context), device) == 0
    Tensor.gpu = torch.device("cuda", device)
    torch.cuda.Stream, torch.cuda.Event, torch.cuda.stream = Stream, Event, Streamed
    torch.cuda.current_stream = current_stream
    torch.futures.Future = Future
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    # Later releases ask a tensor's class to make the calls themselves, of which it knows nothing.
    torch.distributed.distributed_c10d.has_torch_function = lambda _: False
