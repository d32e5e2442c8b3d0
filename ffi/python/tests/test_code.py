"""Functions of Python that serve calls by name."""

import ctypes
import sys
import threading

import pytest
from ranks import on_ranks, processes

from antiphon import AntiphonError, Op, _abi, _registry, register_code, unregister_code
from antiphon._library import check, library
from antiphon._registry import _kept, listed
from antiphon.code import View
from antiphon.errors import AbortedError, InvalidArgumentError
from antiphon.plan import Constraint, DataType

np = pytest.importorskip("numpy")

WORLD, COUNT, MORE = 2, 1000, 100


@pytest.fixture(autouse=True)
def nothing_registered():
    yield
    for _, _, name in listed():
        unregister_code(name)
    assert not _kept


def hub(call):
    """An allreduce by a built-in plan, which adds what only this would add."""
    call.run(call.load_name("allreduce_hub"))
    np.asarray(call.receive)[:] += MORE


def sums(communicator, dtype="float32", **options):
    """What an allreduce of 1 and 2 gives, in place."""
    x = np.full(COUNT, communicator.rank + 1, dtype)
    communicator.all_reduce(x, **options)
    assert (x == x[0]).all()
    return x[0]


def test_code_serves_calls_until_it_is_taken_out():
    register_code("adding", "allreduce", hub, version=3)
    assert listed() == [("code", "allreduce", "adding")]

    def body(communicator):
        assert "chosen: adding (registered code)" in communicator.explain("allreduce", 4 * COUNT)
        out = np.zeros(COUNT, "int64")
        communicator.all_reduce(np.ones(COUNT, "int64"), out, Op.max)
        assert (out == 1 + MORE).all()
        return sums(communicator), sums(communicator, "float64")

    assert on_ranks(WORLD, body) == [(3 + MORE, 3 + MORE)] * WORLD
    unregister_code("adding")
    assert on_ranks(WORLD, sums) == [3] * WORLD and not _kept
    with pytest.raises(InvalidArgumentError, match="adding"):
        unregister_code("adding")


def test_a_call_says_what_it_is():
    calls, lock = [], threading.Lock()

    def broadcast(call):
        with lock:
            calls.append(call)
        assert len(call.send) == len(call.receive) == COUNT and call.send.nbytes == 2 * COUNT
        assert np.asarray(call.send).dtype == np.uint16 and not np.asarray(call.send).flags.writeable
        call.run(call.load_name(names[0]))

    names = []

    def body(communicator):
        text = communicator.explain("broadcast", 2 * COUNT, "bfloat16", root=1)
        if communicator.rank == 0:
            names.append(text.split("chosen: ", 1)[1].split(" ", 1)[0])
            register_code("mine", "broadcast", broadcast, constraint=Constraint(dtypes=(DataType.bfloat16,)))
        communicator.barrier()

        class Bits:
            """Elements of a type that NumPy lacks."""

            def __init__(self, array):
                self.array, self.dtype = array, DataType.bfloat16
                self.__array_interface__ = array.__array_interface__

        bits = Bits(np.full(COUNT, communicator.rank + 5, "uint16"))
        communicator.broadcast(bits, root=1)
        assert (bits.array == 6).all()
        # Another type is not for it.
        x = np.full(COUNT, communicator.rank + 5, "float32")
        communicator.broadcast(x, root=1)
        assert (x == 6).all()

    on_ranks(WORLD, body)
    assert sorted(call.rank for call in calls) == [0, 1]
    for call in calls:
        assert (call.world, call.root, call.op, call.dtype, call.in_place) == (WORLD, 1, None, DataType.bfloat16, False)
        for use in (lambda: np.asarray(call.send).sum(), lambda: call.load_name("allreduce_hub")):
            with pytest.raises(InvalidArgumentError, match="over"):
                use()


def test_code_is_given_the_blocks_of_calls_that_bring_their_own():
    sent, barrier, shapes = [None] * WORLD, threading.Barrier(WORLD, timeout=60), set()

    def move(call):
        out, into = np.asarray(call.send), np.asarray(call.receive)
        blocks = call.send_blocks or [slice(None)] * WORLD
        shapes.add((call.send_blocks is None, call.receive_blocks is None))
        sent[call.rank] = [out[block].copy() for block in blocks]
        barrier.wait()
        for peer, block in enumerate(call.receive_blocks or []):
            into[block] = sent[peer][call.rank] + MORE
        barrier.wait()

    for collective in ("alltoallv", "allgatherv", "scatter"):
        register_code(f"mine {collective}", collective, move)
    with pytest.raises(InvalidArgumentError, match="limits of sizes, or a place, for alltoallv"):
        register_code("small", "alltoallv", move, max_message_size=8)

    def body(communicator):
        rank, x = communicator.rank, np.arange(6, dtype="int32") + 10 * communicator.rank
        # Rank r sends r + 1 + peer elements to each peer, the first from element 3 on.
        counts, offsets = [rank + 1, rank + 2], [3, 0]
        moved = communicator.all_to_all_v(x, counts, np.zeros(6, "int32"), counts, send_offsets=offsets)
        gathered = communicator.all_gather_v(x[: rank + 1], np.zeros(3, "int32"), [1, 2])
        communicator.scatter(np.zeros(2, "int32") if rank == 0 else None, np.zeros(1, "int32"))
        return moved.tolist(), gathered.tolist()

    found = on_ranks(WORLD, body)
    gathered = [100, 110, 111]
    assert found == [([103, 113, 114, 0, 0, 0], gathered), ([100, 101, 110, 111, 112, 0], gathered)]
    assert shapes == {(False, False), (True, False), (True, True)}


def test_nothing_on_a_gpu_has_no_address():
    for size, address in ((0, 0), (8, 64)):
        view = View(64, size, DataType.float32, True, on_device=True)
        assert view.__cuda_array_interface__["data"] == (address, False)
    assert View(64, 0, DataType.float32, False).__array_interface__["data"] == (64, True)


def test_terms_narrow_what_code_serves():
    said = Constraint(WORLD, ops=(Op.sum,))
    register_code("small", "allreduce", hub, constraint=said, min_message_size=8, max_message_size=4 * COUNT, tags={"x"})
    asks = {
        "adding": [("allreduce", 4 * COUNT), ("allreduce", 8)],
        "not": [("allreduce", 4 * COUNT + 4), ("allreduce", 4), ("allgather", 4 * COUNT)],
    }

    def body(communicator):
        for fits, calls in asks.items():
            for call in calls:
                said = "chosen: small" in communicator.explain(*call)
                assert said == (fits == "adding"), call
        assert "chosen: small" not in communicator.explain("allreduce", 4 * COUNT, op=Op.max)

    on_ranks(WORLD, body)


def test_a_largest_size_of_nothing_is_refused():
    with pytest.raises(InvalidArgumentError, match="allowed 1 to"):
        register_code("never", "allreduce", hub, max_message_size=0)


def test_python_takes_out_what_is_its_own_when_it_ends():
    register_code("ours", "allreduce", hub)
    register_code("theirs", "allreduce", hub)
    check(library().antiphon_registry_unregister(b"theirs"))
    code = _abi.Code(ctypes.sizeof(_abi.Code), b"theirs", 1, b"allreduce", _registry._run)
    check(library().antiphon_registry_register_code(code, _registry.terms("theirs")))
    _registry._leave()
    assert _registry.listed() == [("code", "allreduce", "theirs")]
    check(library().antiphon_registry_unregister(b"theirs"))


def test_code_on_a_stream_comes_after_what_is_before_it():
    register_code("adding", "allreduce", hub)

    def body(communicator):
        x = np.full(COUNT, communicator.rank + 1, "float32")
        with communicator.stream() as stream:
            for _ in range(3):
                communicator.all_reduce(x, stream=stream)
            stream.synchronize()
        return x[0]

    first = 3 + MORE
    second = 2 * first + MORE
    assert on_ranks(WORLD, body) == [2 * second + MORE] * WORLD


def test_code_that_fails_ends_the_communicator_with_its_reason():
    def fail(call):
        if call.rank == 1:
            raise LookupError("no way")
        call.run(call.load_name("allreduce_hub"))

    register_code("failing", "allreduce", fail)

    def body(communicator):
        with pytest.raises(AbortedError) as raised:
            sums(communicator)
        with pytest.raises(AntiphonError):
            communicator.barrier()
        return str(raised.value)

    for text in on_ranks(WORLD, body):
        assert "LookupError: no way (test_code.py:" in text and "failing" in text


class Mute(Exception):
    """One that cannot say what it is about, for a reason."""

    def __init__(self, reason):
        super().__init__()
        self.reason = reason

    def __str__(self):
        raise self.reason


@pytest.mark.parametrize("reason", [LookupError("lost"), KeyboardInterrupt()], ids=["fails", "is interrupted"])
def test_code_whose_error_has_no_words_makes_no_call(reason):
    def fail(call):
        raise Mute(reason)

    register_code("failing", "allreduce", fail)

    def body(communicator):
        with pytest.raises(AbortedError, match="Mute, which does not say more"):
            sums(communicator)

    on_ranks(WORLD, body)


def test_an_interrupt_while_an_error_is_told_makes_no_call(monkeypatch):
    def interrupted(raised):
        raise KeyboardInterrupt

    left = []
    monkeypatch.setattr(_registry, "_say", interrupted)
    # What leaves a callback, ctypes tells here, and C gets whatever number is there.
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    register_code("failing", "allreduce", lambda call: 1 // 0)

    def body(communicator):
        with pytest.raises(AntiphonError):
            sums(communicator)

    on_ranks(WORLD, body)
    assert not left


def test_ranks_with_other_versions_are_told_before_either_runs(tmp_path):
    script = tmp_path / "versions.py"
    script.write_text(
        "import antiphon, pytest\n"
        "communicator = antiphon.communicator.default()\n"
        "ran = []\n"
        "antiphon.register_code('mine', 'allreduce', ran.append, version=communicator.rank)\n"
        # Whoever sees it first ends the communicator, with both calls named.
        "kinds = (antiphon.errors.MismatchError, antiphon.errors.AbortedError)\n"
        "with pytest.raises(kinds, match='code mine .*code mine '):\n"
        "    communicator.all_reduce(bytearray(8))\n"
        "assert not ran\n"
        "print('told')\n"
    )
    assert processes(WORLD, [str(script)], tmp_path) == ["told\n"] * WORLD


@pytest.mark.parametrize(
    ("change", "error", "part"),
    [
        ({"name": "allreduce_ring"}, InvalidArgumentError, "built-in"),
        ({"name": "a\0b"}, InvalidArgumentError, "without a zero"),
        ({"name": ""}, InvalidArgumentError, "no name"),
        ({"run": "hub"}, TypeError, "allowed a function"),
        ({"devices": "cuda"}, TypeError, "devices 'cuda': allowed True and False"),
        ({"devices": 1}, TypeError, "devices 1: allowed"),
        ({"version": -1}, InvalidArgumentError, "version -1"),
        ({"constraint": Constraint(world_size=-1)}, InvalidArgumentError, "number of ranks -1"),
        ({"constraint": Constraint(n_ranks_per_node=(1 << 32) + 2)}, InvalidArgumentError, "ranks per node 4294967298"),
        ({"constraint": Constraint(root=-1)}, InvalidArgumentError, "root -1"),
        ({"min_message_size": 1 << 64}, InvalidArgumentError, "min_message_size"),
    ],
)
def test_what_cannot_be_registered_is_refused(change, error, part):
    given = {"name": "mine", "collective": "allreduce", "run": hub, **change}
    with pytest.raises(error, match=part):
        register_code(given.pop("name"), given.pop("collective"), given.pop("run"), **given)
    assert not listed() and not _kept


def test_a_name_is_given_once():
    register_code("mine", "allreduce", hub)
    with pytest.raises(InvalidArgumentError, match="is registered"):
        register_code("mine", "allgather", hub)
    assert len(_kept) == 1
