"""The programs for GPUs of `docs/python.md`, each by the heading that it stands under, on the simulated driver.

CuPy and PyTorch, which a machine without a GPU has no use for, are stood in for by the few calls that the programs make.
"""

import ctypes
import os
import re
import secrets
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from device import Array, cuda, use

import antiphon

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


def program(heading, number=0):
    """A block of `py` of a section."""
    section = PAGE.read_text(encoding="utf-8").split(f" {heading}\n", 1)[1]
    return re.findall(r"^```py\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[number]


class Rank(threading.Thread):
    """A rank, with what went wrong on it."""

    failed = None

    def run(self):
        try:
            super().run()
        except BaseException as error:
            self.failed = error


def stream():
    native = ctypes.c_void_p()
    cuda("cuStreamCreate", ctypes.byref(native), 1)
    return native.value


def on_gpus():
    """With a stream of CuPy's, by a rank alone."""
    os.environ.update(ANTIPHON_RANK="0", ANTIPHON_WORLD="1", ANTIPHON_COMM_ID=f"antiphon-{secrets.token_hex(16)}")
    use()
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=own)))
    own = stream()
    x = Array([1.0, 2.0, 3.0])
    names = {"antiphon": antiphon, "cupy": cupy, "x": x}
    exec(program("On GPUs"), names)
    names["stream"].synchronize()
    assert x.get() == [1.0, 2.0, 3.0]
    names["stream"].close()
    names["communicator"].close()


def algorithms_that_are_functions():
    """With tensors of PyTorch over a call's buffers."""
    current = threading.local()

    @contextmanager
    def entered(one):
        current.stream = one
        yield
        del current.stream

    def as_tensor(view, device):
        assert device == "cuda:0"
        of = view.__cuda_array_interface__
        (address, _), (count,) = of["data"], of["shape"]
        assert of["typestr"] == "<f4"

        def mul_(factor):
            # In the stream's order: the host waits for what is in it.
            cuda("cuStreamSynchronize", ctypes.c_void_p(current.stream))
            values = (ctypes.c_float * count)()
            cuda("cuMemcpyDtoH_v2", values, ctypes.c_uint64(address), ctypes.c_size_t(4 * count))
            values[:] = [factor * value for value in values]
            cuda("cuMemcpyHtoD_v2", ctypes.c_uint64(address), values, ctypes.c_size_t(4 * count))

        return SimpleNamespace(mul_=mul_)

    streams = SimpleNamespace(
        ExternalStream=lambda pointer, device: pointer, default_stream=lambda device: None, stream=entered
    )
    names = {"torch": SimpleNamespace(cuda=streams, as_tensor=as_tensor)}
    exec(program("Algorithms that are functions", 1), names)
    antiphon.register_code("doubled", "allreduce", names["doubled"], devices=True)

    def rank(communicator):
        use()
        x = Array([1.0, 2.0])
        communicator.all_reduce(x)
        assert x.get() == [4.0, 8.0], x.get()
        own = communicator.adopt(stream())
        communicator.all_reduce(x, stream=own)
        own.synchronize()
        assert x.get() == [16.0, 32.0], x.get()
        own.close()

    ends = antiphon.Communicator.in_process(2, device="cuda:0", timeout=100)
    ranks = [Rank(target=rank, args=(end,)) for end in ends]
    [one.start() for one in ranks]
    [one.join() for one in ranks]
    for one in ranks:
        if one.failed:
            raise one.failed
    antiphon.unregister_code("doubled")


cuda("cuInit", 0)
on_gpus()
algorithms_that_are_functions()
print("page: ok")
