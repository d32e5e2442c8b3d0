"""Collectives, and how many chunks they give to buffers."""

import json

import pytest

from antiphon.language import *

CHUNKS = {
    AllGather: ("allgather", 3, 12),
    AllReduce: ("allreduce", 12, 12),
    ReduceScatter: ("reducescatter", 12, 3),
    AllToAll: ("alltoall", 12, 12),
    SendRecv: ("sendrecv", 3, 3),
    Broadcast: ("broadcast", 3, 3),
    Reduce: ("reduce", 3, 3),
    Gather: ("gather", 3, 12),
    Scatter: ("scatter", 12, 3),
}


@pytest.mark.parametrize("collective", CHUNKS)
@pytest.mark.parametrize("inplace", [False, True])
def test_chunks_follow_from_ranks_and_factor(collective, inplace):
    name, inputs, outputs = CHUNKS[collective]
    plan = json.loads(CollectiveProgram("p", collective(4, 3, inplace), 4).to_json())
    assert (plan["collective"], plan["inplace"]) == (name, inplace)
    assert [(gpu["id"], gpu["input_chunks"], gpu["output_chunks"]) for gpu in plan["gpus"]] == [
        (rank, inputs, outputs) for rank in range(4)
    ]


def test_the_arguments_are_required():
    for collective in CHUNKS:
        with pytest.raises(TypeError):
            collective(4, 3)
    assert Broadcast(4, 1, False, 2).root == 2 and Reduce(4, 1, False).root == 0


def test_a_test_collective_has_what_it_is_given():
    collective = TestCollective(2, 5, 7)
    assert (collective.name, collective.chunk_factor, collective.inplace) == ("test", 1, False)
    gpu = json.loads(CollectiveProgram("p", collective, 2).to_json())["gpus"][1]
    assert (gpu["input_chunks"], gpu["output_chunks"], gpu["scratch_chunks"]) == (5, 7, 0)


class Mine(Collective):
    """Rank r has r + 1 chunks in; rank 0 alone has an output."""

    def __init__(self, ranks):
        super().__init__(ranks, 1, False)

    def init_buffers(self):
        return [
            {BufferType.input: BaseBuffer(r, BufferType.input, 0, r + 1)}
            | ({BufferType.output: BaseBuffer(r, BufferType.output, 0, 6)} if r == 0 else {})
            for r in range(self.num_ranks)
        ]


def test_authors_write_their_own():
    collective = Mine(3)
    assert collective.check() is None
    program = CollectiveProgram("p", collective, 3)
    assert program.collective is collective
    plan = json.loads(program.to_json())
    assert (plan["collective"], plan["inplace"]) == ("custom", False)
    chunks = [(gpu["input_chunks"], gpu["output_chunks"]) for gpu in plan["gpus"]]
    assert chunks == [(1, 6), (2, 0), (3, 0)]


class Renamed(AllGather):
    """An allgather by another name."""

    name = "mine"


class Halved(AllReduce):
    """By another name, and with buffers of its own."""

    name = "halved"

    def init_buffers(self):
        kinds = (BufferType.input, BufferType.output)
        return [{kind: BaseBuffer(rank, kind, 0, 1) for kind in kinds} for rank in range(self.num_ranks)]


@pytest.mark.parametrize("on_the_object", [False, True])
def test_a_known_collective_may_have_another_name(on_the_object):
    collective = AllGather(2, 1, True) if on_the_object else Renamed(2, 1, True)
    if on_the_object:
        collective.name = "mine"

    def gathered(ranks):
        with CollectiveProgram("p", collective, 2) as program:
            for me in ranks:
                channel = MemoryChannel(1 - me, me)
                channel.put(Rank(1 - me).get_output_buffer()[me:me + 1], Rank(me).get_input_buffer()[:], tb=0)
                channel.signal(tb=0)
                MemoryChannel(me, 1 - me).wait(tb=0)
        return program

    program = gathered(range(2))
    plan = json.loads(program.to_json())
    assert (plan["collective"], plan["gpus"][0]["input_chunks"], plan["gpus"][0]["output_chunks"]) == ("mine", 1, 2)
    assert program.check() is True
    with pytest.raises(RuntimeError, match="rank 0, output chunk 1: expected chunk 0 of rank 1"):
        gathered([0]).check()


def test_buffers_of_ones_own_are_of_a_collective_of_ones_own():
    program = CollectiveProgram("p", Halved(2, 1, True), 2)
    plan = json.loads(program.to_json())
    assert (plan["collective"], plan["gpus"][0]["input_chunks"], plan["gpus"][0]["output_chunks"]) == ("halved", 1, 1)
    assert program.check() is False


def test_what_gives_no_buffers_is_refused():
    with pytest.raises(NotImplementedError, match="init_buffers"):
        CollectiveProgram("p", Collective(2, 1, False), 2)
    with pytest.raises(ValueError, match="buffers of 2 ranks, allowed 3 or more"):
        CollectiveProgram("p", AllReduce(2, 1, False), 3)
    with pytest.raises(AttributeError):
        CollectiveProgram("p", "allreduce", 2)
