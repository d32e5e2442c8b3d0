"""Groups of calls, and exchanges with neighbours."""

import gc
import threading
import weakref

import numpy as np
import pytest
from ranks import on_ranks

import antiphon
from antiphon import Communicator
from antiphon._groups import _open
from antiphon.errors import InvalidArgumentError, UnsupportedError


def ring(comm):
    """The neighbours of a rank."""
    return (comm.rank + 1) % comm.world, (comm.rank - 1) % comm.world


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("on_stream", [False, True])
def test_neighbours_exchange_in_any_order(world, on_stream):
    def body(comm):
        stream = comm.stream() if on_stream else None
        (right, left), own = ring(comm), np.full(1000, comm.rank)
        from_left, from_right, of_own, sums = (np.zeros(1000, int) for _ in range(4))
        with antiphon.group():
            comm.send(own, right, stream=stream)
            comm.send(own, left, stream=stream)
            comm.all_reduce(own, sums, stream=stream)
            comm.receive(from_left, left, stream=stream)
            comm.receive(from_right, right, stream=stream)
            comm.send(own, comm.rank, stream=stream)
            comm.receive(of_own, comm.rank, stream=stream)
        if stream:
            stream.synchronize()
        expected = left, right, comm.rank, sum(range(world))
        return [set(found.tolist()) == {value} for found, value in zip((from_left, from_right, of_own, sums), expected, strict=True)]

    assert on_ranks(world, body) == [[True] * 4] * world


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_ring_passes_on_what_it_has(world):
    def body(comm):
        right, left = ring(comm)
        received = np.zeros(10, "float32")
        assert comm.send_receive(np.full(10, comm.rank, "int16"), right, np.zeros(10, "int16"), left).tolist() == [left] * 10
        antiphon.send_receive(np.full(10, comm.rank, "float32"), right, received, left, communicator=comm)
        return set(received.tolist()) == {left}

    assert on_ranks(world, body) == [True] * world


def test_one_thread_drives_all_ranks():
    ranks = Communicator.in_process(3)
    buffers = [np.full(100, float(comm.rank + 1)) for comm in ranks]
    with antiphon.group():
        for comm, buffer in zip(ranks, buffers, strict=True):
            assert comm.all_reduce(buffer) is buffer
        # Nothing has been made yet.
        assert [buffer[0] for buffer in buffers] == [1.0, 2.0, 3.0]
    assert [set(buffer.tolist()) for buffer in buffers] == [{6.0}] * 3


def test_a_group_that_is_left_by_an_exception_makes_none_of_its_calls():
    comm, = Communicator.in_process(1)
    received = np.zeros(4)
    for raised in (KeyError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(raised)), antiphon.group():
            comm.send(np.ones(4), 0)
            comm.receive(received, 0)
            raise raised
        # The thread is in no group any more.
        assert not _open
        comm.barrier()
    assert received.tolist() == [0] * 4


def test_a_refused_call_refuses_its_group():
    comm, = Communicator.in_process(1)
    received = np.zeros(4)
    with pytest.raises(InvalidArgumentError, match="rank 7 of 1"), antiphon.group():
        comm.send(np.ones(4), 0)
        comm.receive(received, 0)
        # One that the library refuses, and that goes unnoticed here.
        with pytest.raises(InvalidArgumentError, match="rank 7 of 1"):
            comm.send(np.ones(4), 7)
    assert received.tolist() == [0] * 4
    with pytest.raises(InvalidArgumentError, match="1 sends and 0 receives"), antiphon.group():
        comm.send(np.ones(4), 0)
    with pytest.raises(UnsupportedError, match="inside a group"), antiphon.group():
        comm.barrier()
    comm.barrier()


def test_a_group_inside_another_is_part_of_it():
    comm, = Communicator.in_process(1)
    received = np.zeros(4)
    with antiphon.group():
        with antiphon.group():
            comm.send(np.ones(4), 0)
        comm.receive(received, 0)
        assert received.tolist() == [0] * 4
    assert received.tolist() == [1] * 4
    with pytest.raises(InvalidArgumentError, match="KeyError raised in a group inside it") as told, antiphon.group():
        comm.receive(received, 0)
        with pytest.raises(KeyError), antiphon.group():
            comm.send(np.zeros(4), 0)
            raise KeyError
    assert isinstance(told.value.__cause__, KeyError)
    assert received.tolist() == [1] * 4


def test_a_group_keeps_the_buffers_of_its_calls_and_no_longer():
    comm, = Communicator.in_process(1)

    class Mine(np.ndarray):
        pass

    def mine():
        made = np.full(4, 7.0).view(Mine)
        return made, weakref.ref(made)

    stream, received = comm.stream(), [np.zeros(4), np.zeros(4)]
    with antiphon.group():
        kept = []
        for queue, target in zip((None, stream), received, strict=True):
            sent, seen = mine()
            comm.send(sent, 0, stream=queue)
            comm.receive(target, 0, stream=queue)
            kept.append(seen)
            del sent
        gc.collect()
        assert all(seen() is not None for seen in kept)
    gc.collect()
    # The stream keeps those of its calls from there on.
    assert [seen() is not None for seen in kept] == [False, True]
    stream.synchronize()
    gc.collect()
    assert kept[1]() is None
    assert [target.tolist() for target in received] == [[7.0] * 4] * 2


def test_a_group_is_of_its_thread():
    comm, = Communicator.in_process(1)
    summed = np.ones(4)

    def other():
        # Not gathered: complete on return.
        comm.all_reduce(summed)
        comm.barrier()

    with antiphon.group():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert not _open


def test_code_that_serves_a_call_of_a_group_makes_groups_of_its_own():
    comm, beside = *Communicator.in_process(1), *Communicator.in_process(1)
    passed_on = []

    def twice(call):
        received = np.zeros(1)
        with antiphon.group():
            beside.send(np.asarray(call.send)[:1], 0)
            beside.receive(received, 0)
        passed_on.extend(received.tolist())
        np.asarray(call.receive)[:] *= 2

    antiphon.register_code("test_groups_twice", "allreduce", twice)
    try:
        doubled = np.full(4, 3.0)
        with antiphon.group():
            comm.all_reduce(doubled)
            assert not passed_on
        assert (doubled.tolist(), passed_on) == ([6.0] * 4, [3.0])
    finally:
        antiphon.unregister_code("test_groups_twice")
