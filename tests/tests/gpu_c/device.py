"""Python's communicators on devices: buffers are objects with `__cuda_array_interface__` or DLPack, over the driver's own calls."""

import ctypes
import os
import threading

from antiphon import (
    Communicator, DataType, ExecutionPlan, Executor, Op, UniqueId, group, local_rank, register_code, unregister_code
)  # fmt: skip
from antiphon._library import library
from antiphon.errors import InvalidArgumentError, UnsupportedError
from antiphon.plan import Constraint

WORLD, COUNT = 4, 256
PLAN = os.environ["PLAN"]
made = threading.Event()
driver = ctypes.CDLL(os.environ["ANTIPHON_CUDA_LIB"])


def cuda(name, *arguments):
    assert getattr(driver, name)(*arguments) == 0, name


class Array:
    """Elements of float32 in a device's memory, as CuPy has them."""

    def __init__(self, values, stream=None):
        self.values = (ctypes.c_float * len(values))(*values)
        address = ctypes.c_uint64()
        cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(ctypes.sizeof(self.values)))
        self.address = address.value
        cuda("cuMemcpyHtoD_v2", address, self.values, ctypes.c_size_t(ctypes.sizeof(self.values)))
        self.stream = stream

    @property
    def __cuda_array_interface__(self):
        shape, data = (len(self.values),), (self.address, False)
        return {"version": 3, "shape": shape, "typestr": "<f4", "data": data, "strides": None, "stream": self.stream}

    def get(self):
        cuda("cuMemcpyDtoH_v2", self.values, ctypes.c_uint64(self.address), ctypes.c_size_t(ctypes.sizeof(self.values)))
        return list(self.values)


class Tensor:
    """A `DLTensor` in front of a `DLManagedTensor`'s rest."""

    class Managed(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
            ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
            ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
            ("manager", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ]  # fmt: skip

    def __init__(self, array):
        self.array, self.asked = array, []
        self.shape = (ctypes.c_int64 * 1)(len(array.values))
        self.managed = self.Managed(array.address, 2, 0, 1, 2, 32, 1, self.shape)

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, stream=None):
        self.asked.append(stream)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def refused(error, part, call, *arguments):
    try:
        call(*arguments)
    except error as raised:
        assert part in str(raised), raised
        return
    raise AssertionError(f"{call} was not refused")


def use():
    """Has the first device be current on this thread."""
    context = ctypes.c_void_p()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    cuda("cuCtxSetCurrent", context)


views = []


def twice(call):
    """An allreduce whose sums are doubled: a second one adds up what two ranks give of the first."""
    plan = ExecutionPlan(PLAN)
    assert call.device == 0 and not call.recorded and call.send.__cuda_array_interface__["shape"] == (COUNT,)
    views.append(call.send)
    assert call.send.__cuda_array_interface__["data"] == (call.send.address, False), "PyTorch refuses what is read-only"
    refused(InvalidArgumentError, "send buffer", call.run, plan, call.receive, call.send)
    elsewhere = Array([0.0] * COUNT, call.stream + 64)
    refused(InvalidArgumentError, "of stream", call.run, plan, elsewhere, call.receive)
    # Copied by the driver's call, in the call's stream.
    copies.append((Array([0.0] * COUNT), Array([0.0] * COUNT)))
    one, other = copies[-1]
    size = ctypes.c_size_t(call.send.nbytes)
    cuda("cuMemcpyAsync", ctypes.c_uint64(one.address), ctypes.c_uint64(call.send.address), size, ctypes.c_void_p(call.stream))
    # Of what has DLPack alone, made ready for the call's stream.
    lent = Tensor(one)
    call.run(plan, lent, other)
    assert lent.asked == [call.stream or 1], (lent.asked, call.stream)
    zero = Array([0.0] * COUNT)
    copies.append((zero, zero))
    call.run(plan, other if call.rank < 2 else zero, call.receive)


copies = []


def rank(communicator):
    use()
    native = ctypes.c_void_p()
    # Not one that the other copies here wait for: they would wait for a rank that waits for this one.
    cuda("cuStreamCreate", ctypes.byref(native), 1)
    own = [float(communicator.rank * 10 + at) for at in range(COUNT)]
    sums = [float(4 * at + 60) for at in range(COUNT)]

    x, out = Array(own), Array([0.0] * COUNT)
    assert communicator.all_reduce(x, out) is out and out.get() == sums and x.get() == own
    communicator.all_reduce(x, op=Op.max)
    assert x.get() == [float(30 + at) for at in range(COUNT)]
    whole = Array([0.0] * (WORLD * COUNT))
    communicator.all_gather(Array(own), whole)
    assert whole.get() == [float(other * 10 + at) for other in range(WORLD) for at in range(COUNT)]

    # In a stream of the application, and with arrays that name it.
    x = Array(own, native.value)
    stream = communicator.adopt(native.value)
    communicator.all_reduce(x, stream=stream)
    stream.synchronize()
    assert x.get() == sums
    # The host waits for no array that names the call's own stream: others come to both calls when this one has made them.
    x, y = Array(own, native.value), Array(own, native.value)
    if communicator.rank > 0:
        assert made.wait(100)
    for array in (x, y):
        communicator.all_reduce(array, stream=stream)
        communicator.all_reduce(array, op=Op.max, stream=stream)
    if communicator.rank == 0:
        made.set()
    stream.synchronize()
    assert x.get() == sums and y.get() == sums
    stream.close()

    tensor = Tensor(Array(own))
    communicator.all_reduce(tensor)
    assert tensor.array.get() == sums and tensor.asked == [1]

    # Both neighbours at once, beside a collective; and what is sent to the rank itself.
    right, left = (communicator.rank + 1) % WORLD, (communicator.rank - 1) % WORLD
    received, x = [Array([0.0] * COUNT) for _ in range(3)], Array(own)
    with group():
        for peer, target in zip((left, right, communicator.rank), received):
            communicator.send(Array(own), peer)
            communicator.receive(target, peer)
        communicator.all_reduce(x)
    assert [found.get()[0] for found in received] == [10.0 * left, 10.0 * right, own[0]] and x.get() == sums
    assert communicator.send_receive(Array(own), left, out, right) is out and out.get()[0] == 10.0 * right

    # The communicator's own memory, and plans over all of these.
    memory = communicator.allocate(4 * COUNT)
    assert memory.__cuda_array_interface__["data"] == (memory.address, False) and not hasattr(memory, "__array_interface__")
    executor = Executor(communicator)
    plan = ExecutionPlan(PLAN)
    x = Array(own)
    executor.run(plan, x, out)
    assert out.get() == sums
    executor.execute(communicator.rank, x.address, out.address, 4 * COUNT, 4 * COUNT, "float32", plan, native.value)
    cuda("cuStreamSynchronize", native)
    assert out.get() == sums

    # An executor outlives the communicator's being closed, here as on the host.
    other = communicator.split(0, communicator.rank)
    executor = Executor(other)
    other.close()
    out = Array([0.0] * COUNT)
    executor.run(plan, Array(own, native.value), out)
    assert out.get() == sums
    out = Array([0.0] * COUNT)
    executor.execute(communicator.rank, Array(own), out, 4 * COUNT, 4 * COUNT, "float32", plan, native.value)
    cuda("cuStreamSynchronize", native)
    assert out.get() == sums

    # By a function that is registered, which leaves its sums twice: in a stream of the application, and without one.
    communicator.barrier()
    if communicator.rank == 0:
        register_code("twice", "allreduce", twice, devices=True, constraint=Constraint(dtypes=(DataType.float32,)))
    communicator.barrier()
    x = Array(own)
    stream = communicator.adopt(native.value)
    communicator.all_reduce(x, stream=stream)
    stream.synchronize()
    assert x.get() == [2 * value for value in sums], x.get()
    assert communicator.all_reduce(Array(own), out) is out and out.get() == [2 * value for value in sums]
    refused(AttributeError, "has no such interface", getattr, views[0], "__array_interface__")
    refused(InvalidArgumentError, "is over", getattr, views[0], "__cuda_array_interface__")
    stream.close()
    communicator.barrier()
    if communicator.rank == 0:
        unregister_code("twice")
    communicator.barrier()
    communicator.all_reduce(x)
    assert x.get() == [8 * value for value in sums]

    refused(InvalidArgumentError, "is on a GPU", communicator.all_reduce, bytearray(8))
    refused(InvalidArgumentError, "cannot use", communicator.all_reduce, None)
    other = communicator.split(communicator.rank)
    refused(InvalidArgumentError, "is on a GPU", other.all_reduce, bytearray(8))
    cuda("cuStreamDestroy_v2", native)


def by_local_rank():
    """The fourth rank of a host has the fourth device, or the one that it has made current."""
    os.environ["ANTIPHON_LOCAL_RANK"] = "3"
    assert local_rank() == 3
    lib, found = library(), []

    def find(prepare):
        prepare()
        number = ctypes.c_uint32()
        with Communicator.from_id(UniqueId.create(), 0, 1, device="cuda") as alone:
            assert lib.antiphon_communicator_make_current(alone._open()) == 0
            assert lib.antiphon_device_current(b"cuda", ctypes.byref(number)) == 0
        found.append(number.value)

    for prepare in (lambda: None, use):
        thread = threading.Thread(target=find, args=(prepare,))
        thread.start()
        thread.join()
    assert found == [3, 0], found


def main():
    cuda("cuInit", 0)
    by_local_rank()
    failed = []

    def guarded(communicator):
        try:
            rank(communicator)
        except BaseException as error:
            communicator.abort(f"{type(error).__name__}: {error}")
            failed.append(error)

    ends = Communicator.in_process(WORLD, device="cuda:0", timeout=100)
    threads = [threading.Thread(target=guarded, args=(end,)) for end in ends]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    if failed:
        raise failed[0]
    use()
    # One thread calls for all ranks.
    arrays = [Array([float(end.rank)] * COUNT) for end in ends]
    with group():
        for end, array in zip(ends, arrays):
            end.all_reduce(array)
    assert all(array.get() == [6.0] * COUNT for array in arrays)
    [alone] = Communicator.in_process(1, device="host")
    refused(UnsupportedError, "is on the host", alone.all_reduce, Array([1.0]))
    refused(UnsupportedError, "is on the host", alone.all_reduce, Tensor(Array([1.0])))
    print("device: ok")


if __name__ == "__main__":
    main()
