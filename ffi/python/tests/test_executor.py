"""Plans that are written in Python and run from Python."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from ranks import on_ranks

from antiphon import DataType, ExecutionPlan, Executor, Op, PacketType
from antiphon.dsl import jit
from antiphon.errors import InvalidArgumentError, InvalidPlanError, PlanRefutedError, UnsupportedError
from antiphon.language import AllReduce, CollectiveProgram, MemoryChannel, Rank

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))


def pair(name):
    """Allreduce of two ranks: each gets the other's input and adds it."""
    with CollectiveProgram(name, AllReduce(2, 1, False), 2) as program:
        for me, peer in ((0, 1), (1, 0)):
            channel = MemoryChannel(peer, me)
            own, out = Rank(me).get_input_buffer(), Rank(me).get_output_buffer()
            channel.reduce(own[0:2], [Rank(peer).get_input_buffer()[0:2]], tb=0, local_dst_chunk=out[0:2])
            channel.signal(tb=0)
            channel.wait(tb=0)
    return program


def test_a_plan_runs_over_arrays_and_addresses():
    handle = jit.compile(algo=lambda: pair("pair"))

    def body(comm):
        executor = Executor(comm)
        send = np.arange(50, dtype="float32") + comm.rank
        first, second, third = (np.zeros(50, "float32") for _ in range(3))
        executor.execute(
            comm.rank, send.ctypes.data, first.ctypes.data, send.nbytes, first.nbytes, DataType.float32, handle.plan
        )
        executor.execute(comm.rank, send, second, 200, 200, "float32", handle, packet_type=PacketType.LL8)
        with comm.stream() as stream:
            executor.execute(comm.rank, send, third, 200, 200, send.dtype, handle, stream)
        loaded = executor.load(handle)
        assert loaded is executor.load(handle.plan) and loaded.verdict() == "proven" and "proven" in loaded.report()
        greatest = executor.run(loaded, send, np.zeros(50, "float32"), Op.max)
        return first, second, third, executor.run(handle, send, np.zeros(50, "float32")), greatest

    base = np.arange(50, dtype="float32")
    for *sums, greatest in on_ranks(2, body):
        for each in sums:
            np.testing.assert_array_equal(each, 2 * base + 1)
        np.testing.assert_array_equal(greatest, base + 1)


def test_the_arguments_of_the_formats_own_package():
    handle = jit.compile(algo=lambda: pair("pair"))

    def body(comm):
        executor = Executor(comm=comm)
        plan = ExecutionPlan(planPath=handle.plan.path, rank=comm.rank)
        send, received = np.full(50, comm.rank + 1, "float32"), np.zeros(50, "float32")
        executor.execute(
            rank=comm.rank, send_buff=send.ctypes.data, recv_buff=received.ctypes.data, send_buff_size=200, recv_buff_size=200,
            data_type=DataType.float32, plan=plan, stream=0, packet_type=PacketType.LL16,
        )  # fmt: skip
        with pytest.raises(TypeError, match=r"Executor.execute\(\) got the argument 'dtype' twice, also as 'data_type'"):
            executor.execute(comm.rank, send, received, 200, 200, plan=plan, dtype="float32", data_type="float32")
        with pytest.raises(TypeError, match="multiple values for argument 'send_ptr'"):
            executor.execute(comm.rank, send, received, 200, 200, "float32", plan, send_buff=send)
        return received

    for sums in on_ranks(2, body):
        np.testing.assert_array_equal(sums, 3)


def test_an_executor_forgets_its_plans():
    """On one rank alone, too; what was loaded before stays usable."""
    handle = jit.compile(algo=lambda: pair("pair"))

    def body(comm):
        executor = Executor(comm)
        before, send = executor.load(handle), np.full(50, comm.rank + 1, "float32")
        executor.run(handle, send, np.zeros(50, "float32"))
        if comm.rank == 0:
            executor.reset()
        assert (executor.load(handle) is before) is (comm.rank == 1)
        return [executor.run(plan, send, np.zeros(50, "float32")) for plan in (before, handle)]

    for sums in on_ranks(2, body):
        np.testing.assert_array_equal(sums, 3)


def test_plans_of_files_and_names():
    plan = ExecutionPlan(EXAMPLES / "plans" / "allreduce_zero_copy_4.json")

    def body(comm):
        executor = Executor(comm)
        x, y = np.full(77, comm.rank, "int32"), np.full(77, comm.rank, "int32")
        executor.run(plan, x, x)
        return x[76], executor.run(executor.load_name("allreduce_ring", True), y)[0]

    assert on_ranks(4, body) == [(6, 6)] * 4


def alone(call):
    """What a call on a communicator of two ranks raises, on both."""

    def body(comm):
        with pytest.raises(Exception) as told:
            call(Executor(comm), comm.rank)
        return told.value

    return on_ranks(2, body)


REFUSALS = {
    "another rank": (lambda e, r, p: e.execute(1 - r, 0, 0, 0, 0, "int32", p), ValueError, "the communicator's"),
    "no such type": (lambda e, r, p: e.execute(r, 0, 0, 0, 0, "float7", p), UnsupportedError, "float7"),
    "a type unlike any here": (
        lambda e, r, p: e.execute(r, 0, 0, 0, 0, DataType.float8_e4m3b15, p), UnsupportedError, "float8_e4m3b15"
    ),
    "no whole elements": (lambda e, r, p: e.execute(r, 0, 0, 6, 6, "int32", p), InvalidArgumentError, "multiple of 4"),
    "more than there is": (
        lambda e, r, p: e.execute(r, bytes(8), bytearray(8), 16, 16, "int32", p), InvalidArgumentError, "it has 8"
    ),
    "less than nothing": (lambda e, r, p: e.execute(r, 0, 0, -4, 4, "int32", p), InvalidArgumentError, "-4"),
    "a stream of a GPU": (lambda e, r, p: e.execute(r, 0, 0, 0, 0, "int32", p, 77), UnsupportedError, "stream 77"),
    "packets of no kind": (lambda e, r, p: e.execute(r, 0, 0, 0, 0, "int32", p, 0, "LL32"), ValueError, "LL32"),
    "a name that is none": (lambda e, r, p: e.load_name("allreduce_magic"), Exception, "allreduce_magic"),
    "two types": (lambda e, r, p: e.run(p, np.ones(4, "f4"), np.ones(4, "i4")), InvalidArgumentError, "one type"),
    "floats the other way round": (lambda e, r, p: e.run(p, np.ones(4, ">f4"), np.ones(4, "f4")), InvalidArgumentError, "order"),
    "into such": (lambda e, r, p: e.run(p, np.ones(4, "f4"), np.ones(4, ">f4")), InvalidArgumentError, "order"),
    "short integers as floats": (lambda e, r, p: e.run(p, np.ones(8, "i2"), np.ones(4, "f4")), InvalidArgumentError, "one type"),
    "short integers as short floats": (lambda e, r, p: e.run(p, np.ones(4, "i2"), np.ones(4, "f2")), InvalidArgumentError, "one type"),
    "bits the other way round": (lambda e, r, p: e.run(p, np.ones(4, ">u2"), np.ones(4, "f2")), InvalidArgumentError, "one type"),
    "complex numbers as floats": (lambda e, r, p: e.run(p, np.ones(2, "c8"), np.ones(4, "f4")), InvalidArgumentError, "one type"),
    "integers as floats": (lambda e, r, p: e.run(p, np.ones(4, "f4"), np.ones(4, "u4")), InvalidArgumentError, "one type"),
    "types without numbers of ours": (lambda e, r, p: e.run(p, np.ones(4, "?"), np.ones(4, "?")), InvalidArgumentError, "one type"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused(call, error, text):
    plan = jit.compile(algo=lambda: pair("pair")).plan
    for told in alone(lambda executor, rank: call(executor, rank, plan)):
        assert isinstance(told, error) and text in str(told), told


def test_plans_that_go_wrong_are_refused(tmp_path):
    racy = ExecutionPlan(EXAMPLES / "refuted" / "sendrecv_without_nop_2.json")
    for told in alone(lambda executor, rank: executor.load(racy)):
        assert isinstance(told, PlanRefutedError) and "in Python `verification=False`" in str(told), told
    four = ExecutionPlan(EXAMPLES / "plans" / "allreduce_zero_copy_4.json")
    for told in alone(lambda executor, rank: executor.load(four)):
        assert isinstance(told, InvalidPlanError) and "4" in str(told), told
    broken = json.loads(Path(racy.path).read_text())
    broken["gpus"][0]["threadblocks"][0]["ops"][0]["name"] = "jump"
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    for told in alone(lambda executor, rank: executor.load(ExecutionPlan(tmp_path / "broken.json"))):
        assert isinstance(told, InvalidPlanError) and "jump" in str(told), told


def test_no_communicator_no_executor():
    with pytest.raises(TypeError, match="allowed a Communicator"):
        Executor(None)


def test_bfloat16_by_its_bits():
    """There are no such arrays in NumPy: bytes and a name of the type do."""
    handle = jit.compile(algo=lambda: pair("pair"))
    one, two = (struct.pack("<f", number)[2:] * 8 for number in (1.5, 2.5))

    def body(comm):
        out = bytearray(16)
        Executor(comm).execute(comm.rank, two if comm.rank else one, out, 16, 16, DataType.bfloat16, handle)
        return bytes(out)

    assert on_ranks(2, body) == [struct.pack("<f", 4.0)[2:] * 8] * 2


def test_bits_beside_a_buffer_that_says_their_type():
    class Halves:
        """Elements of a type that NumPy lacks."""

        def __init__(self, array):
            self.dtype, self.__array_interface__ = DataType.bfloat16, array.__array_interface__

    handle = jit.compile(algo=lambda: pair("pair"))

    def body(comm):
        own, sums = np.full(8, 0x3F80 + 0x80 * comm.rank, "uint16"), np.zeros((2, 8), "uint16")
        Executor(comm).run(handle, own, Halves(sums[0]))
        Executor(comm).run(handle, Halves(own), sums[1])
        return sums

    # 1 and 2 are 3.
    for sums in on_ranks(2, body):
        np.testing.assert_array_equal(sums, 0x4040)


def test_a_plan_that_does_not_say_where_its_sums_end_cannot_average(tmp_path):
    named = json.loads((EXAMPLES / "plans" / "allreduce_zero_copy_4.json").read_text())
    named["collective"] = "mine"
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(named))

    def body(comm):
        executor = Executor(comm)
        loaded = executor.load(ExecutionPlan(path))
        own = np.full(8, comm.rank + 1, "float32")
        with pytest.raises(InvalidArgumentError, match="cannot average: saw plan .* of collective `mine`"):
            executor.run(loaded, own, np.zeros(8, "float32"), Op.avg)
        return executor.run(loaded, own, np.zeros(8, "float32"), Op.sum)

    for sums in on_ranks(4, body, verification=False):
        np.testing.assert_array_equal(sums, 10)
