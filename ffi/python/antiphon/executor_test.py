"""`python -m antiphon.executor_test`: checks and times a plan, with the flags of the format's own test.

Started by a launcher it is one rank; otherwise it starts as many ranks as the plan has, as processes of this host. Buffers are on the
host, or on GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from antiphon._executor_places import Driver, OnDevice, OnHost, device_of

if TYPE_CHECKING:
    from antiphon.communicator import Communicator

__all__ = ["main"]

TYPES = {"float16": (2, 2.0**-10), "bfloat16": (2, 2.0**-7), "float32": (4, 2.0**-23), "int32": (4, 0.0)}
"""For each type the bytes of an element, and the distance from 1 to the next larger number."""

LAUNCHED = (
    ("ANTIPHON_RANK", "ANTIPHON_WORLD"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_ID"),
)
"""The variables that launchers set in the environment of their ranks."""

SHORT = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
"""Shorter names of types."""


def size(text: str) -> int:
    """A number of bytes; K, M and G are powers of 1024."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    number = int(text[:-1] if factor > 1 else text)
    if number <= 0:
        raise ValueError(text)
    return number * factor


def element(text: str) -> str:
    """The name of a type of elements, written small or large, or its short one."""
    return SHORT.get(text.lower(), text.lower())


def parser() -> argparse.ArgumentParser:
    """The flags."""
    flags = argparse.ArgumentParser(prog="python -m antiphon.executor_test", description=__doc__)
    flags.add_argument("-path", "--execution_plan_path", required=True, metavar="FILE", help="the plan")
    flags.add_argument(
        "--size", type=size, required=True, help="bytes of the larger buffer; K, M and G are powers of 1024"
    )
    flags.add_argument("--in_place", action="store_true", help="pass one buffer, by the collective's convention")
    flags.add_argument("--dtype", type=element, choices=TYPES, default="float16", help="type of elements (float16)")
    flags.add_argument("--packet_type", choices=["LL16", "LL8"], default="LL16", help="taken; packets are the engine's own")
    flags.add_argument("--n_iters", type=int, default=10, help="runs that are checked, and runs in a round (10)")
    flags.add_argument("--n_graph_iters", type=int, default=10, help="rounds that are timed, after one that is not (10)")
    flags.add_argument(
        "--device",
        help="where buffers are: host, cuda, rocm (ranks take turns on the GPUs there are), or one, as in cuda:1 "
        "(ANTIPHON_DEVICE, else host)",
    )
    flags.add_argument(
        "--split_mask",
        type=lambda text: int(text, 0),
        default=0,
        help="for sendrecv: ranks of equal bits under this mask pass on in a ring of their own (0x0: all in one)",
    )
    flags.add_argument(
        "--no-verify", dest="verify", action="store_false", help="run the plan without proving it first, to see it fail"
    )
    return flags


@dataclass
class Job:
    """What the flags ask of a plan."""

    collective: str
    world: int
    size: int
    dtype: str
    in_place: bool
    split_mask: int

    def __post_init__(self) -> None:
        mask = self.split_mask + 1
        if self.split_mask & mask or self.world % mask:
            raise ValueError(
                f"cannot split {self.world} ranks by mask {self.split_mask:#x}: allowed 2^k - 1 for a 2^k that divides them"
            )
        if self.collective not in ("allreduce", "allgather", "reducescatter", "alltoall", "sendrecv"):
            raise ValueError(
                f"cannot check a plan for {self.collective}: allowed allreduce, allgather, reducescatter, alltoall and "
                "sendrecv; run it by `antiphon run`"
            )
        if self.collective == "sendrecv" and self.in_place:
            raise ValueError("cannot run sendrecv in place: leave --in_place out")
        unit = TYPES[self.dtype][0] * (1 if self.collective in ("allreduce", "sendrecv") else self.world)
        if self.size % unit:
            raise ValueError(f"cannot run {self.collective} with {self.size} bytes: allowed a multiple of {unit}")

    @property
    def elements(self) -> int:
        """Elements of the larger buffer."""
        return self.size // TYPES[self.dtype][0]

    def counts(self) -> tuple[int, int]:
        """Elements of the send and the receive buffer."""
        whole, part = self.elements, self.elements // self.world
        return {"allgather": (part, whole), "reducescatter": (whole, part)}.get(self.collective, (whole, whole))

    def source(self, rank: int) -> int:
        """The rank from which a rank receives in a sendrecv."""
        return (rank - self.split_mask - 1) % self.world


class Numbers:
    """Makes buffers of a type of elements in a form that NumPy can hold: bfloat16 as its bits."""

    def __init__(self, dtype: str) -> None:
        try:
            import numpy
        except ImportError:
            raise SystemExit("cannot check a plan: it takes NumPy; install it") from None
        self.np: Any = numpy
        self.dtype = dtype
        self.raw = numpy.dtype("uint16" if dtype == "bfloat16" else dtype)

    def empty(self, count: int) -> Any:
        """A buffer of zeros."""
        return self.np.zeros(count, self.raw)

    def fill(self, rank: int, iteration: int, count: int) -> Any:
        """The numbers of the type that a rank has in an iteration: whole ones up to 1024, or fractions below 1."""
        np = self.np
        state = np.arange(count, dtype="uint32") + np.uint32((rank * 40503 + iteration * 977 + 1) & 0xFFFFFFFF)
        for _ in range(2):
            state = state * np.uint32(1664525) + np.uint32(1013904223)
        if self.dtype == "int32":
            return (state >> np.uint32(22)).astype("int32")
        return self.store((state >> np.uint32(8)).astype("float32") * np.float32(2.0**-24))

    def store(self, values: Any) -> Any:
        """Converts float32 numbers to the type: cut off for bfloat16, rounded for other floats."""
        if self.dtype == "bfloat16":
            return (values.view("uint32") >> self.np.uint32(16)).astype("uint16")
        return values.astype(self.raw)

    def load(self, raw: Any) -> Any:
        """Converts numbers of the type to float64."""
        if self.dtype == "bfloat16":
            return (raw.astype("uint32") << self.np.uint32(16)).view("float32").astype("float64")
        return raw.astype("float64")

    def wrong(self, got: Any, expected: Any, ranks: int) -> int:
        """How many numbers are further from the expected ones than `ranks` roundings explain."""
        allowed = TYPES[self.dtype][1] * ranks * (1 + abs(expected))
        return int((~(abs(self.load(got) - expected) <= allowed)).sum())


def expected(job: Job, numbers: Numbers, rank: int, iteration: int) -> Any:
    """What a rank's receive buffer should hold after a run."""
    sends, receives = job.counts()

    def of(other: int) -> Any:
        return numbers.load(numbers.fill(other, iteration, sends))

    part = job.elements // job.world
    own = slice(rank * part, (rank + 1) * part)
    ranks = range(job.world)
    if job.collective in ("allreduce", "reducescatter"):
        total = sum(of(other) for other in ranks)
        return total if job.collective == "allreduce" else total[own]
    if job.collective == "sendrecv":
        return of(job.source(rank))
    parts = [of(other) if job.collective == "allgather" else of(other)[own] for other in ranks]
    return numbers.np.concatenate(parts)


def buffers(job: Job, place: OnHost | OnDevice, rank: int) -> list[tuple[Any, Any]]:
    """Send and receive buffers: one pair, or two pairs that are used in turn."""
    sends, receives = job.counts()
    if not job.in_place:
        pairs = 2 if job.collective == "sendrecv" else 1
        return [(place.empty(sends), place.empty(receives)) for _ in range(pairs)]
    whole = place.empty(job.elements)
    part = job.elements // job.world
    own = place.part(whole, rank * part, (rank + 1) * part)
    return [{"allgather": (own, whole), "reducescatter": (whole, own)}.get(job.collective, (whole, whole))]


def run(options: argparse.Namespace, communicator: Communicator, driver: Driver | None) -> bool:
    """Checks and times the plan on one rank; returns whether the results were right."""
    from antiphon.plan import ExecutionPlan, Executor, PacketType

    rank, world = communicator.rank, communicator.world
    plan = ExecutionPlan(options.execution_plan_path, rank)
    job = Job(plan.collective, world, options.size, options.dtype, options.in_place, options.split_mask)
    numbers = Numbers(options.dtype)
    executor = Executor(communicator)
    packets = PacketType(options.packet_type)

    def execute(send: Any, receive: Any, send_bytes: int, receive_bytes: int, stream: Any) -> None:
        executor.execute(rank, send, receive, send_bytes, receive_bytes, job.dtype, plan, stream, packets)

    place: OnHost | OnDevice
    if driver is None:
        place = OnHost(numbers, communicator, execute)
    else:
        place = OnDevice(numbers, communicator, execute, driver)
    pairs = buffers(job, place, rank)
    wrong = 0
    for iteration in range(options.n_iters):
        send, receive = pairs[iteration % len(pairs)]
        got = place.checked(send, receive, numbers.fill(rank, iteration, send.size))
        wrong += numbers.wrong(got, expected(job, numbers, rank, iteration), world)
        # A buffer that a peer may still read must not be filled again.
        communicator.barrier()
    place.forget()
    if total := place.total(wrong):
        sys.stderr.write(f"Rank: {rank} wrong elements: {wrong}, on all ranks: {total}\n")
        return False

    def round() -> None:
        for turn in range(options.n_iters):
            place.execute(*pairs[turn % len(pairs)])

    elapsed = place.seconds(round, options.n_graph_iters) / (options.n_iters * options.n_graph_iters)
    received = pairs[0][1].nbytes
    # Written in one piece, since ranks share the terminal.
    sys.stdout.write(
        f"Rank: {rank} Execution time: {elapsed * 1e6:.3f} us, data size: {received} bytes data type: {job.dtype} "
        f"bandwidth: {received / elapsed / (1 << 30):.2f} GB/s, packet type: {packets.name}\n"
    )
    sys.stdout.flush()
    communicator.barrier()
    return True


def start(arguments: list[str], path: str) -> int:
    """Starts the plan's ranks as processes of this host; returns the exit status of the first that failed."""
    with open(path, encoding="utf-8") as file:
        world = len(json.load(file)["gpus"])
    place = f"antiphon-{secrets.token_hex(16)}"
    ranks = []
    for rank in range(world):
        said = {"ANTIPHON_RANK": str(rank), "ANTIPHON_WORLD": str(world), "ANTIPHON_COMM_ID": place}
        command = [sys.executable, "-m", "antiphon.executor_test", *arguments]
        ranks.append(subprocess.Popen(command, env={**os.environ, **said}))
    try:
        return max(abs(rank.wait()) for rank in ranks)
    finally:
        for process in ranks:
            process.kill()
            process.wait()


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit status: 0 if all results were right, 1 if not, 2 if the arguments make no sense."""
    from antiphon.communicator import Communicator
    from antiphon.errors import AntiphonError

    options = parser().parse_args(arguments)
    if options.n_iters < 1 or options.n_graph_iters < 1:
        print("cannot run a plan less than once: give --n_iters and --n_graph_iters of 1 or more", file=sys.stderr)
        return 2
    try:
        if not any(all(name in os.environ for name in names) for names in LAUNCHED):
            return start(arguments, options.execution_plan_path)
        device, driver = device_of(options.device)
        with Communicator.from_environment(device=device, verification=options.verify) as communicator:
            return 0 if run(options, communicator, driver) else 1
    except (AntiphonError, OSError, KeyError, ValueError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) and not isinstance(error, AntiphonError) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
