"""The places of `executor_test`'s buffers: the host, or a GPU, whose driver copies them and records runs into a graph."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from antiphon._buffers import NAMES, Span
from antiphon.communicator import local_rank
from antiphon.errors import UnsupportedError

if TYPE_CHECKING:
    from antiphon.communicator import Communicator, Memory

__all__ = ["Driver", "OnDevice", "OnHost", "Part", "Plan", "device_of"]

Plan = Callable[[Any, Any, int, int, Any], None]
"""Executes the plan: send and receive buffer, their bytes, and a stream."""

LIBRARIES = {
    "cuda": ("ANTIPHON_CUDA_LIB", ("libcuda.so.1",)),
    "rocm": ("ANTIPHON_HIP_LIB", ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")),
}
"""The drivers: for each the variable that names its library, and the names by which it is looked for."""


class Driver:
    """The calls of a vendor's driver that are needed for copies and graphs, on one GPU."""

    def __init__(self, backend: str) -> None:
        variable, names = LIBRARIES[backend]
        self._hip = backend == "rocm"
        self._library = self._load([named] if (named := os.environ.get(variable)) else list(names), variable)
        self("cuInit", "hipInit", 0)

    @staticmethod
    def _load(names: list[str], variable: str) -> ctypes.CDLL:
        said = ""
        for name in names:
            try:
                return ctypes.CDLL(name)
            except OSError as error:
                said = said or str(error)
        raise UnsupportedError(f"cannot run on a GPU: no driver ({said}); install it, or name its library by {variable}")

    def __call__(self, cuda: str, hip: str, *arguments: Any) -> None:
        name = hip if self._hip else cuda
        if result := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"the driver failed: {name} returned {result}")

    def count(self) -> int:
        """How many GPUs there are."""
        count = ctypes.c_int()
        self("cuDeviceGetCount", "hipGetDeviceCount", ctypes.byref(count))
        return count.value

    def use(self, index: int) -> None:
        """Makes a GPU current on this thread."""
        if self._hip:
            self("", "hipSetDevice", index)
            return
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", "", ctypes.byref(context), index)
        self("cuCtxSetCurrent", "", context)

    def stream(self) -> int:
        """A new stream, which does not wait for the default one."""
        made = ctypes.c_void_p()
        self("cuStreamCreate", "hipStreamCreateWithFlags", ctypes.byref(made), 1)
        return made.value or 0

    def upload(self, address: int, source: int, size: int, stream: int) -> None:
        """Copies from the host, in a stream."""
        sizes = ctypes.c_size_t(size), *((1,) if self._hip else ())
        at, of, line = ctypes.c_void_p(address), ctypes.c_void_p(source), ctypes.c_void_p(stream)
        self("cuMemcpyHtoDAsync_v2", "hipMemcpyAsync", at, of, *sizes, line)

    def download(self, target: int, address: int, size: int, stream: int) -> None:
        """Copies to the host, in a stream."""
        sizes = ctypes.c_size_t(size), *((2,) if self._hip else ())
        to, at, line = ctypes.c_void_p(target), ctypes.c_void_p(address), ctypes.c_void_p(stream)
        self("cuMemcpyDtoHAsync_v2", "hipMemcpyAsync", to, at, *sizes, line)

    def synchronize(self, stream: int) -> None:
        """Waits for a stream."""
        self("cuStreamSynchronize", "hipStreamSynchronize", ctypes.c_void_p(stream))

    def recorded(self, stream: int, body: Callable[[], None]) -> Graph:
        """Records what `body` puts into a stream as a graph."""
        line, graph, ready = ctypes.c_void_p(stream), ctypes.c_void_p(), ctypes.c_void_p()
        # The mode is relaxed, since other threads of the library allocate meanwhile.
        self("cuStreamBeginCapture_v2", "hipStreamBeginCapture", line, 2)
        try:
            body()
        except BaseException:
            # The error of `body` is the cause of any error that ending the recording reports.
            with contextlib.suppress(RuntimeError):
                self("cuStreamEndCapture", "hipStreamEndCapture", line, ctypes.byref(graph))
            raise
        self("cuStreamEndCapture", "hipStreamEndCapture", line, ctypes.byref(graph))
        flags = ctypes.c_uint64(0)
        self("cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags", ctypes.byref(ready), graph, flags)
        self("cuGraphDestroy", "hipGraphDestroy", graph)
        return Graph(self, ready, line)


class Graph(NamedTuple):
    """What was recorded from a stream."""

    driver: Driver
    ready: ctypes.c_void_p
    stream: ctypes.c_void_p

    def launch(self) -> None:
        """Puts a replay into the stream."""
        self.driver("cuGraphLaunch", "hipGraphLaunch", self.ready, self.stream)

    def forget(self) -> None:
        """Destroys the graph, of which no replay may be under way."""
        self.driver("cuGraphExecDestroy", "hipGraphExecDestroy", self.ready)


def device_of(named: str | None) -> tuple[str, Driver | None]:
    """The device that a rank's buffers are on, and its driver; None on the host. Ranks take turns on the GPUs of a backend that
    is named without a number."""
    device = named or os.environ.get("ANTIPHON_DEVICE") or "host"
    backend, _, number = device.partition(":")
    if backend not in LIBRARIES:
        return device, None
    driver = Driver(backend)
    index = int(number) if number else local_rank() % max(1, driver.count())
    driver.use(index)
    return f"{backend}:{index}", driver


class Part(NamedTuple):
    """Elements of a buffer on a GPU."""

    address: int
    """The address of the first one."""
    size: int
    """How many they are."""
    nbytes: int
    """Bytes."""


class OnHost:
    """Buffers are NumPy's."""

    def __init__(self, numbers: Any, communicator: Communicator, plan: Plan) -> None:
        self._numbers, self._communicator, self._plan = numbers, communicator, plan

    def empty(self, count: int) -> Any:
        """A buffer of zeros."""
        return self._numbers.empty(count)

    def part(self, whole: Any, begin: int, end: int) -> Any:
        """Elements of a buffer."""
        return whole[begin:end]

    def execute(self, send: Any, receive: Any) -> None:
        """Runs the plan."""
        self._plan(send, receive, send.nbytes, receive.nbytes, 0)

    def checked(self, send: Any, receive: Any, filled: Any) -> Any:
        """What a run over these numbers leaves in the receive buffer."""
        send[:] = filled
        self.execute(send, receive)
        return receive

    def forget(self) -> None:
        """Lets go of what checks have kept."""

    def total(self, count: int) -> int:
        """The sum of all ranks' counts."""
        total = self._numbers.np.array([count], "int64")
        self._communicator.all_reduce(total)
        return int(total[0])

    def seconds(self, body: Callable[[], None], rounds: int) -> float:
        """Seconds that rounds take, after one that is not timed."""
        body()
        self._communicator.barrier()
        begun = time.perf_counter()
        for _ in range(rounds):
            body()
        return time.perf_counter() - begun


class OnDevice:
    """Buffers are the communicator's, on its GPU, and runs are in a stream of its own."""

    def __init__(self, numbers: Any, communicator: Communicator, plan: Plan, driver: Driver) -> None:
        self._numbers, self._communicator, self._plan, self._driver = numbers, communicator, plan, driver
        self._stream = driver.stream()
        self._memory: list[Memory] = []
        self._graphs: dict[tuple[Part, Part], Graph] = {}

    def empty(self, count: int) -> Part:
        """A buffer of zeros."""
        size = count * self._numbers.raw.itemsize
        self._memory.append(self._communicator.allocate(size))
        return Part(self._memory[-1].address, count, size)

    def part(self, whole: Part, begin: int, end: int) -> Part:
        """Elements of a buffer."""
        item = self._numbers.raw.itemsize
        return Part(whole.address + begin * item, end - begin, (end - begin) * item)

    def execute(self, send: Part, receive: Part) -> None:
        """Puts a run of the plan into the stream."""
        self._plan(send.address, receive.address, send.nbytes, receive.nbytes, self._stream)

    def checked(self, send: Part, receive: Part, filled: Any) -> Any:
        """What a run over these numbers leaves in the receive buffer. The first with these buffers is a run by itself; later ones
        are replays of a graph, so that a plan is found out that is wrong only there."""
        self._driver.upload(send.address, filled.ctypes.data, send.nbytes, self._stream)
        if graph := self._graphs.get((send, receive)):
            graph.launch()
        else:
            self.execute(send, receive)
            self._finish()
            graph = self._driver.recorded(self._stream, lambda: self.execute(send, receive))
            self._graphs[send, receive] = graph
        got = self._numbers.empty(receive.size)
        self._driver.download(got.ctypes.data, receive.address, receive.nbytes, self._stream)
        self._finish()
        return got

    def forget(self) -> None:
        """Lets go of what checks have recorded."""
        for graph in self._graphs.values():
            graph.forget()
        self._graphs.clear()

    def total(self, count: int) -> int:
        """The sum of all ranks' counts."""
        own, memory = self._numbers.np.array([count], "int64"), self._communicator.allocate(8)
        self._driver.upload(memory.address, own.ctypes.data, 8, self._stream)
        self._driver.synchronize(self._stream)
        self._communicator.all_reduce(Span(memory.address, 8, NAMES["int64"], memory))
        self._driver.download(own.ctypes.data, memory.address, 8, self._stream)
        self._driver.synchronize(self._stream)
        return int(own[0])

    def seconds(self, body: Callable[[], None], rounds: int) -> float:
        """Seconds that rounds take as launches of a graph, after one that is not timed."""
        graph = self._driver.recorded(self._stream, body)
        try:
            graph.launch()
            self._finish()
            self._communicator.barrier()
            begun = time.perf_counter()
            for _ in range(rounds):
                graph.launch()
            self._finish()
            return time.perf_counter() - begun
        finally:
            graph.forget()

    def _finish(self) -> None:
        """Waits for the stream, and raises what went wrong in it."""
        with self._communicator.adopt(self._stream) as stream:
            stream.synchronize()
