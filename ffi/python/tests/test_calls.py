"""Collectives over NumPy arrays, held against NumPy."""

import ctypes
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ranks import LIMIT, on_ranks

import antiphon
from antiphon import Communicator, Op
from antiphon._library import check, library
from antiphon.errors import AbortedError, InvalidArgumentError, MismatchError, UnsupportedError

WORLDS = [1, 2, 3]
COUNTS = [0, 1, 1000]
TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64"]


def values(rank, count, dtype="int32"):
    """Small whole numbers, different on each rank."""
    return ((np.arange(count) * 3 + rank * 7) % 5 + 1).astype(dtype)


def all_values(world, count, dtype="int32"):
    return [values(rank, count, dtype) for rank in range(world)]


@pytest.mark.parametrize("dtype", TYPES)
def test_sums_of_every_type(dtype):
    def body(comm):
        return comm.all_reduce(values(comm.rank, 100, dtype))

    for sums in on_ranks(2, body):
        assert sums.dtype == dtype
        np.testing.assert_array_equal(sums, sum(all_values(2, 100, dtype)))


@pytest.mark.parametrize("op", Op)
def test_every_reduction(op):
    reference = {
        Op.sum: np.sum, Op.prod: np.prod, Op.min: np.min, Op.max: np.max, Op.avg: np.mean,
    }[op]  # fmt: skip

    def body(comm):
        own = values(comm.rank, 64, "float32")
        out, scattered = np.zeros(64, "float32"), np.zeros(32, "float32")
        comm.reduce_scatter(own, scattered, op)
        return comm.all_reduce(own, out, op), scattered

    expected = reference(np.stack(all_values(2, 64, "float32")), axis=0)
    for rank, (out, scattered) in enumerate(on_ranks(2, body)):
        np.testing.assert_allclose(out, expected)
        np.testing.assert_allclose(scattered, expected[32 * rank :][:32])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "on a stream"])
def test_every_collective(world, count, streamed):
    def body(comm):
        stream = comm.stream() if streamed else None
        own, every = values(comm.rank, count), values(comm.rank, count * world)
        out = {name: np.zeros(count, "int32") for name in ("all_reduce", "reduce_scatter", "broadcast", "scatter", "reduce")}
        out |= {name: np.zeros(count * world, "int32") for name in ("all_gather", "all_to_all", "gather")}
        root = world - 1
        comm.all_reduce(own, out["all_reduce"], stream=stream)
        comm.reduce_scatter(every, out["reduce_scatter"], Op.max, stream=stream)
        comm.all_gather(own, out["all_gather"], stream=stream)
        comm.all_to_all(every, out["all_to_all"], stream=stream)
        comm.scatter(every if comm.rank == root else None, out["scatter"], root, stream=stream)
        comm.gather(own, out["gather"] if comm.rank == root else None, root, stream=stream)
        comm.reduce(own, out["reduce"] if comm.rank == root else None, Op.sum, root, stream=stream)
        out["broadcast"][:] = own
        comm.broadcast(out["broadcast"], root, stream=stream)
        if stream:
            stream.synchronize()
            assert stream.done()
            stream.close()
        comm.barrier()
        return out

    each, whole = all_values(world, count), all_values(world, count * world)
    for rank, out in enumerate(on_ranks(world, body)):
        own = slice(rank * count, (rank + 1) * count)
        np.testing.assert_array_equal(out["all_reduce"], sum(each))
        np.testing.assert_array_equal(out["reduce_scatter"], np.max(whole, axis=0)[own])
        np.testing.assert_array_equal(out["all_gather"], np.concatenate(each))
        np.testing.assert_array_equal(out["all_to_all"], np.concatenate([part[own] for part in whole]))
        np.testing.assert_array_equal(out["scatter"], whole[-1][own])
        np.testing.assert_array_equal(out["broadcast"], each[-1])
        if rank == world - 1:
            np.testing.assert_array_equal(out["gather"], np.concatenate(each))
            np.testing.assert_array_equal(out["reduce"], sum(each))


def test_in_place():
    def body(comm):
        own = slice(comm.rank * 10, (comm.rank + 1) * 10)
        gathered, scattered, exchanged, everyone = (values(comm.rank, 20) for _ in range(4))
        assert comm.all_gather(None, gathered) is gathered
        assert comm.reduce_scatter(scattered) is scattered
        assert comm.all_to_all(exchanged) is exchanged
        if comm.rank == 1:
            comm.gather(None, everyone, 1)
            comm.scatter(everyone, None, 1)
        else:
            comm.gather(values(0, 10), None, 1)
            comm.scatter(None, everyone[:10], 1)
        return gathered, scattered[own], exchanged, everyone

    whole = all_values(2, 20)
    for rank, (gathered, scattered, exchanged, everyone) in enumerate(on_ranks(2, body)):
        own = slice(rank * 10, (rank + 1) * 10)
        np.testing.assert_array_equal(gathered, np.concatenate([whole[0][:10], whole[1][10:]]))
        np.testing.assert_array_equal(scattered, sum(whole)[own])
        np.testing.assert_array_equal(exchanged, np.concatenate([part[own] for part in whole]))
        np.testing.assert_array_equal(everyone[:10], values(0, 10))


def test_blocks_of_their_own_lengths():
    """Rank r sends r + s + 1 elements to rank s; of a type that can be moved alone, too."""

    def body(comm, dtype):
        counts = [comm.rank + peer + 1 for peer in range(3)]
        send = (np.arange(sum(counts)) + 100 * comm.rank).astype(dtype)
        out = np.zeros(sum(counts), dtype)
        comm.all_to_all_v(send, counts, out, counts)
        spread = np.zeros(32, dtype)
        comm.all_to_all_v(send, counts, spread, counts, receive_offsets=[20, 10, 0])
        np.testing.assert_array_equal(spread[20 : 20 + counts[0]], out[: counts[0]])
        return out

    for dtype in ("float32", "complex128"):
        for rank, out in enumerate(on_ranks(3, lambda comm: body(comm, dtype))):  # noqa: B023
            parts = []
            for peer in range(3):
                begin = sum(peer + other + 1 for other in range(rank))
                parts.append(np.arange(begin, begin + peer + rank + 1) + 100 * peer)
            np.testing.assert_array_equal(out, np.concatenate(parts).astype(dtype))


@pytest.mark.parametrize("counts", [[3, 0, 5], [0, 0, 0], [1, 1, 1]])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_gathered_blocks_of_their_own_lengths(counts, dtype):
    """Of a type that can be moved alone, too; in place on some ranks, on all, and on none."""

    def of(rank):
        return (np.arange(counts[rank]) + 100 * rank + 1).astype(dtype)

    def body(comm):
        rank, (stream, got) = comm.rank, (comm.stream(), [])
        for in_place in (set(), {1, 2}, {0, 1, 2}):
            out = np.zeros(sum(counts), dtype)
            begin = sum(counts[:rank])
            out[begin : begin + counts[rank]] = of(rank) if rank in in_place else 0
            assert comm.all_gather_v(None if rank in in_place else of(rank), out, counts) is out
            got.append(out)
        # Backwards, with room between; a block of nothing may be said to be anywhere.
        offsets = [offset if count else 1000 for offset, count in zip([20, 10, 0], counts)]
        spread = np.zeros(32, dtype)
        comm.all_gather_v(of(rank), spread, counts, receive_offsets=offsets, stream=stream)
        stream.synchronize()
        own = np.zeros(32, dtype)
        own[(begin := [20, 10, 0][rank]) : begin + counts[rank]] = of(rank)
        comm.all_gather_v(None, own, counts, receive_offsets=offsets)
        return got, spread, own

    expected = np.zeros(32, dtype)
    for rank, begin in enumerate([20, 10, 0]):
        expected[begin : begin + counts[rank]] = of(rank)
    for got, *spread in on_ranks(3, body):
        for out in got:
            np.testing.assert_array_equal(out, np.concatenate([of(rank) for rank in range(3)]))
        for out in spread:
            np.testing.assert_array_equal(out, expected)


def test_gathered_blocks_that_ranks_disagree_about_are_refused():
    def body(comm):
        with pytest.raises((MismatchError, AbortedError)) as told:
            comm.all_gather_v(np.ones(1 + comm.rank), np.zeros(4), [1 + comm.rank, 2])
        return str(told.value)

    assert all("rank" in text for text in on_ranks(2, body))


def test_point_to_point():
    def body(comm):
        peer = 1 - comm.rank
        box = np.zeros(5, "datetime64[s]")
        own = np.arange(5).astype("datetime64[s]") + comm.rank
        for sender in (0, 1):
            if comm.rank == sender:
                comm.send(own, peer)
            else:
                assert comm.receive(box, peer) is box
        return box

    for rank, box in enumerate(on_ranks(2, body)):
        np.testing.assert_array_equal(box, np.arange(5).astype("datetime64[s]") + (1 - rank))


def test_groups():
    def body(comm):
        group = comm.split(comm.rank % 2, key=-comm.rank)
        nobody = comm.split(None if comm.rank else 0)
        assert (nobody is None) == (comm.rank > 0)
        assert [comm.node(rank) for rank in range(3)] == [comm.node(0)] * 3
        return group.rank, group.world, group.all_reduce(np.array([comm.rank]))[0]

    assert on_ranks(3, body) == [(1, 2, 2), (0, 1, 1), (0, 2, 2)]


def test_memory_that_peers_map():
    def body(comm):
        with comm.allocate(400) as memory:
            array = np.asarray(memory).view("float32")
            assert (array.size, memory.size, not array.any()) == (100, 400, True)
            array[:] = comm.rank + 1
            comm.all_reduce(array)
            comm.barrier()
            return float(array.sum())

    assert on_ranks(2, body) == [300, 300]


@pytest.mark.parametrize("size", [0, 400])
def test_memory_outlives_what_closes_it_as_long_as_an_array_is_there(alone, size):
    memory = alone.allocate(size)
    seen = weakref.ref(memory._handle)
    part = np.asarray(memory).view("float32")[:50]
    memory.close()
    gc.collect()
    assert seen() is not None
    part[:] = 7
    assert alone.all_reduce(part).tolist() == [7.0] * part.size
    for use in (lambda: np.asarray(memory), lambda: alone.broadcast(memory)):
        with pytest.raises(InvalidArgumentError, match="closed"):
            use()
    del part
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize("view", [lambda memory: memory, lambda memory: np.asarray(memory).view("float32")], ids=["as it is", "viewed"])
def test_memory_outlives_what_closes_it_until_calls_are_done(view):
    ends = Communicator.in_process(2, timeout=LIMIT)
    streams = [end.stream() for end in ends]
    with ends[0].allocate(1 << 16) as memory:
        seen = weakref.ref(memory._handle)
        ends[0].broadcast(view(memory), 1, stream=streams[0])
    gc.collect()
    assert seen() is not None
    own = np.arange(1 << 14, dtype="float32")
    ends[1].broadcast(own.view(view(np.zeros(4, "uint8")).dtype), 1, stream=streams[1])
    for stream in streams:
        stream.synchronize()
    gc.collect()
    assert seen() is None


def test_memory_is_given_back_when_it_is_closed(alone):
    with alone.allocate(400) as memory:
        seen = weakref.ref(memory._handle)
        alone.all_reduce(memory)
        np.asarray(memory)[:] = 1
    gc.collect()
    assert seen() is None


def test_functions_use_the_communicator_that_is_given_or_set():
    def body(comm):
        x = np.ones(3)
        antiphon.all_reduce(x, communicator=comm)
        antiphon.barrier(comm)
        return x[0]

    assert on_ranks(2, body) == [2, 2]
    (alone,) = Communicator.in_process(1)
    antiphon.communicator.set_default(alone)
    try:
        assert antiphon.all_gather(np.ones(2), np.zeros(2)).tolist() == [1, 1]
        antiphon.barrier()
    finally:
        antiphon.communicator.set_default(None)
        alone.close()


@pytest.fixture
def alone():
    (communicator,) = Communicator.in_process(1)
    yield communicator
    communicator.close()


class OnGpu:
    """What a CUDA array looks like."""

    __cuda_array_interface__ = {"data": (1 << 20, False), "shape": (4,), "typestr": "<f4", "version": 3}


class Dlpack:
    """Memory that is reached by DLPack alone."""

    def __init__(self, array):
        self.array = array
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


class Interface:
    """Memory that is reached by `__array_interface__` alone."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


BUFFERS = {
    "numpy": lambda array: array,
    "bytearray": lambda array: bytearray(array.tobytes()),
    "memoryview": lambda array: memoryview(array),
    "ctypes": lambda array: (ctypes.c_float * 6)(*array.ravel()),
    "DLPack": Dlpack,
    "array interface": Interface,
}


def test_fields_are_moved_whatever_their_names(alone):
    source = np.array([(1, 2)], [("Order", "i4"), ("O", "f4")])
    assert alone.all_gather(source, np.zeros_like(source)).tolist() == [(1, 2)]


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_of_all_kinds(alone, kind):
    source = BUFFERS[kind](np.arange(6, dtype="float32").reshape(2, 3))
    out = np.zeros(6, "uint8" if kind == "bytearray" else "float32")
    if kind == "bytearray":
        out = bytearray(24)
    alone.all_gather(source, out)
    assert bytes(out) == np.arange(6, dtype="float32").tobytes()
    if kind != "bytearray":
        alone.all_reduce(source, out)
        assert out.tolist() == [0, 1, 2, 3, 4, 5]
    alone.broadcast(source)


def test_what_is_read_only_is_sent_only(alone):
    sent = np.arange(6.0)
    sent.flags.writeable = False
    out = np.zeros(6)
    assert alone.all_reduce(sent, out) is out and out.tolist() == sent.tolist()
    assert alone.all_gather(b"some bytes", box := bytearray(10)) is box and box == b"some bytes"


REFUSED = {
    "read-only": lambda c: c.all_reduce(b"bytes"),
    "not contiguous": lambda c: c.all_reduce(np.ones((4, 4)).T),
    "a GPU's": lambda c: c.all_reduce(OnGpu()),
    "a str": lambda c: c.all_reduce("text"),
    "two types": lambda c: c.all_reduce(np.ones(4, "f4"), np.ones(4, "i4")),
    "of this type": lambda c: c.all_reduce(np.ones(4, "bool")),
    "equal": lambda c: c.all_reduce(np.ones(4), np.ones(5)),
    "equal ones": lambda c: c.all_gather(np.ones(4), np.ones(5)),
    "rank 1": lambda c: c.broadcast(np.ones(4), 1),
    "root -1": lambda c: c.broadcast(np.ones(4), -1),
    "root 0.5: saw a float": lambda c: c.broadcast(np.ones(4), 0.5),
    "root 0.0: saw a float": lambda c: c.gather(np.ones(4), np.ones(4), 0.0),
    "send_counts 1.9: saw a float": lambda c: c.all_to_all_v(np.ones(4), [1.9], np.ones(4), [1.9]),
    "receive_counts 4.0": lambda c: c.all_gather_v(np.ones(4), np.ones(4), [4.0]),
    "receive_offsets 0.5": lambda c: c.all_gather_v(np.ones(4), np.ones(4), [4], receive_offsets=[0.5]),
    "key 2147483648: allowed -2147483648 to": lambda c: c.split(0, 1 << 31),
    "a ndarray of Python's objects": lambda c: c.broadcast(np.array([[1, "two"]], dtype=object)),
    "Interface of Python's objects": lambda c: c.broadcast(Interface(np.zeros(2, "i4,O"))),
    "Array_2 of Python's objects": lambda c: c.broadcast((ctypes.py_object * 2)("one", "two")),
    "message_size -1": lambda c: c.explain("allreduce", -1),
    "message_size 18446744073709551616": lambda c: c.explain("allreduce", 1 << 64),
    "size -1": lambda c: c.allocate(-1),
    "size 18446744073709551616": lambda c: c.allocate(1 << 64),
    "reduction": lambda c: c.all_reduce(np.ones(4), op=17),
    "lies in a buffer of 4": lambda c: c.all_to_all_v(np.ones(4), [5], np.ones(4), [4]),
    "a send buffer of 3 elements": lambda c: c.all_gather_v(np.ones(3), np.ones(4), [4]),
    "lies in a buffer of 3": lambda c: c.all_gather_v(np.ones(4), np.ones(3), [4]),
    "receive_counts and offsets for 2": lambda c: c.all_gather_v(np.ones(4), np.ones(8), [4, 4]),
    "of 8 bytes and others of 16 bytes": lambda c: c.all_gather_v(np.ones(4, "complex64"), np.ones(4, "complex128"), [4]),
    "for 2": lambda c: c.all_to_all_v(np.ones(4), [4, 0], np.ones(4), [4]),
    "bytes": lambda c: antiphon.UniqueId(b""),
    "color": lambda c: c.split(-1),
    "seconds": lambda c: Communicator.in_process(1, timeout=0),
    "0 ranks": lambda c: Communicator.in_process(0),
    "allowed 1 to 65536": lambda c: Communicator.in_process((1 << 16) + 1),
}


@pytest.mark.parametrize(("text", "call"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_is_refused(alone, text, call):
    with pytest.raises((InvalidArgumentError, UnsupportedError), match=text):
        call(alone)
    assert alone.all_reduce(np.ones(2)).tolist() == [1, 1]


def test_numbers_may_be_those_of_numpy(alone):
    zero, four = np.int64(0), np.array([4])
    for call in (alone.gather, alone.scatter):
        assert call(np.arange(4), np.zeros(4, int), zero).tolist() == [0, 1, 2, 3]
    assert alone.all_to_all_v(np.arange(4), four, np.zeros(4, int), four).tolist() == [0, 1, 2, 3]
    assert alone.split(zero).rank == 0


def test_the_library_makes_no_more_ranks_than_there_is_room_for():
    made = ctypes.c_void_p()
    most = antiphon.communicator._MOST_IN_PROCESS
    with pytest.raises(InvalidArgumentError, match=f"allowed up to {most}$"):
        check(library().antiphon_communicator_create_in_process(most + 1, None, made))


def test_sizes_that_do_not_fit_the_ranks_are_refused():
    def body(comm):
        for call, text in (
            (lambda: comm.all_gather(np.ones(4), np.ones(4)), "a receive buffer 2 times as long"),
            (lambda: comm.reduce_scatter(np.ones(4), np.ones(4)), "a send buffer 2 times as long"),
            (lambda: comm.all_to_all(np.ones(5), np.ones(5)), "equally many elements"),
            (lambda: comm.all_gather(None, np.ones(5)), "equally many elements"),
            (lambda: comm.reduce_scatter(np.ones(5)), "equally many elements"),
        ):
            with pytest.raises(InvalidArgumentError, match=text):
                call()
        return comm.all_reduce(np.ones(1))[0]

    assert on_ranks(2, body) == [2, 2]


@pytest.mark.parametrize("dtype", ["int16", "complex64", ">f4", "datetime64[s]", "V6"])
def test_no_element_is_torn_between_two_ranks(dtype):
    """Of types that are moved only: three elements for two ranks are as many bytes as there are for each."""

    def body(comm):
        own, other = np.zeros(3, dtype), np.zeros(3, dtype)
        calls = [lambda: comm.all_to_all(own), lambda: comm.all_to_all(own, other), lambda: comm.all_gather(None, own)]
        # The root alone has a buffer for all.
        calls += [lambda: comm.scatter(own, None, comm.rank), lambda: comm.gather(None, own, comm.rank)]
        for call in calls:
            with pytest.raises(InvalidArgumentError, match="equally many elements"):
                call()
        four = np.arange(4).astype("int16").astype(dtype, casting="unsafe") if dtype != "V6" else np.frombuffer(b"abcdef" * 4, dtype)
        every = four.copy()
        comm.all_to_all(every)
        half = four[:2] if comm.rank == 0 else four[2:]
        np.testing.assert_array_equal(every, np.concatenate([half, half]))
        return comm.all_reduce(np.ones(1))[0]

    assert on_ranks(2, body) == [2, 2]


def test_what_is_closed_is_refused():
    with Communicator.in_process(1)[0] as comm:
        stream = comm.stream()
    assert comm.closed
    for call in (comm.barrier, lambda: comm.all_reduce(np.ones(1)), lambda: comm.broadcast(np.ones(1)), comm.stream):
        with pytest.raises(InvalidArgumentError):
            call()
    stream.close()
    stream.close()
    comm.close()


def test_what_is_closed_under_a_call_stays_until_the_call_is_done():
    def body(comm):
        group = comm.split(0)
        if comm.rank:
            group.abort("enough")
            return True
        told = []

        def wait():
            try:
                group.barrier()
            except (AbortedError, InvalidArgumentError) as error:
                # Ended by the other rank; or closed before it began.
                told.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        group.close()
        waiter.join(LIMIT)
        return group.closed and len(told) == 1

    for _ in range(20):
        assert on_ranks(2, body) == [True, True]


def test_ranks_that_call_different_things_are_told():
    def body(comm):
        with pytest.raises((MismatchError, AbortedError)) as told:
            comm.all_reduce(np.ones(4 + comm.rank))
        assert isinstance(comm.error(), (MismatchError, AbortedError))
        return told.value

    told = on_ranks(2, body)
    # One sees it, and may tell the other before that sees it itself.
    assert any(isinstance(error, MismatchError) for error in told)
    for error in told:
        assert "rank 0 called" in str(error) and "rank 1 called" in str(error)


def test_an_abort_ends_waits():
    def body(comm):
        if comm.rank == 0:
            comm.abort("enough")
        with pytest.raises(AbortedError, match="enough"):
            comm.all_reduce(np.ones(4))
        return comm.error().result

    assert on_ranks(2, body) == [12, 12]


def test_reproducible_communicators_say_so():
    def body(communicator):
        return "allreduce_ring (built-in algorithm): is not reproducible" in communicator.explain("allreduce", 1 << 20)

    for said in (None, False, True):
        assert on_ranks(2, body, reproducible=said) == [said is True] * 2


def test_a_stream_keeps_the_buffers_of_calls_until_they_are_complete():
    ends = Communicator.in_process(2, timeout=LIMIT)
    pending, own = np.ones(1 << 16, "float32"), np.ones(1 << 16, "float32")
    seen = weakref.ref(pending)
    stream = ends[0].stream()
    ends[0].all_reduce(pending, stream=stream)
    # Nobody has it but the call, whose peer has not come; nor has anybody the stream.
    del pending, stream
    gc.collect()
    assert seen() is not None
    with ends[1].stream() as peers:
        ends[1].all_reduce(own, stream=peers)
    np.testing.assert_array_equal(own, 2.0)
    deadline = time.monotonic() + LIMIT
    while seen() is not None and time.monotonic() < deadline:
        # Streams that were left are looked at when one is made.
        ends[0].stream().close()
    assert seen() is None


def test_who_waits_for_a_stream_leaves_later_calls_their_buffers():
    ends = Communicator.in_process(2, timeout=LIMIT)
    first, second = np.ones(4, "float32"), np.ones(4, "float32")
    stream = ends[0].stream()
    ends[0].all_reduce(first, stream=stream)
    with ThreadPoolExecutor(1) as pool, ends[1].stream() as peers:
        waits = pool.submit(stream.synchronize)
        while not waits.running():
            pass
        ends[0].all_reduce(second, stream=stream)
        seen = weakref.ref(second)
        del second
        ends[1].all_reduce(np.ones(4, "float32"), stream=peers)
        # Whether the second call is waited for is chance; its buffer is kept until it is complete.
        assert seen() is not None
        ends[1].all_reduce(np.ones(4, "float32"), stream=peers)
        waits.result(LIMIT)
    stream.synchronize()
    assert seen() is None


def test_elements_in_another_order_of_bytes_do_not_reduce():
    for name in (">f4", ">i4"):
        with pytest.raises(InvalidArgumentError, match="cannot reduce elements of this type"):
            on_ranks(1, lambda comm, name=name: comm.all_reduce(np.array([1, 2], name)))
    sent = np.array([1, 2], ">i4")
    for received in on_ranks(2, lambda comm: comm.all_gather(sent, np.zeros(4, ">i4"))):
        np.testing.assert_array_equal(received, [1, 2, 1, 2])


def test_counts_are_in_elements_however_the_buffer_says_them():
    def body(comm):
        own, out = np.arange(3, dtype="int16") + 10 * comm.rank, np.zeros(3, "int16")
        comm.all_to_all_v(Interface(own), [1, 2] if comm.rank == 0 else [2, 1], Interface(out), [1, 2] if comm.rank == 0 else [2, 1])
        return out.tolist()

    assert on_ranks(2, body) == [[0, 10, 11], [1, 2, 12]]


def test_blocks_of_types_of_other_sizes_are_refused():
    def body(comm):
        sent, received = np.zeros(2, "complex64"), np.zeros(2, "complex128")
        calls = [lambda: comm.all_to_all_v(sent, [1, 1], received, [1, 1]), lambda: comm.all_to_all(np.zeros(4, "c8"), received)]
        calls += [lambda: comm.all_gather(sent[:1], np.zeros(1, "c16")), lambda: comm.all_gather_v(sent[:1], received, [1, 1])]
        calls += [lambda: comm.gather(np.zeros(4, "i2"), received[:1], comm.rank)]
        calls += [lambda: comm.scatter(received[:1], np.zeros(4, "i2"), comm.rank)]
        for call in calls:
            with pytest.raises(InvalidArgumentError, match=r"two types: saw others of \d+ bytes and others of \d+ bytes"):
                call()

    on_ranks(2, body)
