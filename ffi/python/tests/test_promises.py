"""Whether plans keep what their collectives promise, and collectives whose sizes come with each call."""

import json

import pytest

from antiphon.language import (
    AllGather,
    AllGatherV,
    AllToAllV,
    BaseBuffer,
    Buffer,
    BufferType,
    Collective,
    CollectiveProgram,
    MemoryChannel,
    Rank,
    TestCollective,
)


def gather(ranks, collective, leave_out=None, instances=1):
    """Everyone puts its input into everyone's output."""
    with CollectiveProgram("gather", collective, ranks, instances=instances) as program:
        for me in range(ranks):
            own = Rank(me).get_input_buffer()[0:1]
            Rank(me).copy(Rank(me).get_output_buffer()[me:me + 1], own, tb=0)
            channels = {peer: MemoryChannel(peer, me) for peer in range(ranks) if peer != me}
            for peer, channel in channels.items():
                if (me, peer) != leave_out:
                    channel.put(Rank(peer).get_output_buffer()[me:me + 1], own, tb=0)
                channel.signal(tb=0)
            for channel in channels.values():
                channel.wait(tb=0)
    return program


@pytest.mark.parametrize("instances", [1, 2])
def test_a_promise_that_is_kept(instances):
    assert gather(3, AllGather(3, 1, False), instances=instances).check() is True


def test_a_promise_that_is_broken():
    with pytest.raises(RuntimeError) as error:
        gather(3, AllGather(3, 1, False), leave_out=(2, 0)).check()
    assert str(error.value) == (
        "rank 0, output chunk 2: expected chunk 0 of rank 2, found what was there before"
    )


class Swap(Collective):
    """Two ranks swap their inputs."""

    def __init__(self, wrong=False):
        super().__init__(2, 1, False)
        self.wrong = wrong

    def init_buffers(self):
        return [
            {
                BufferType.input: BaseBuffer(rank, BufferType.input, 0, 2),
                BufferType.output: BaseBuffer(rank, BufferType.output, 0, 2),
            }
            for rank in range(2)
        ]

    def post_condition(self, rank, chunk):
        if chunk == 1 and not self.wrong:
            return None
        return [(1 - rank, chunk)]


@pytest.mark.parametrize("wrong", [False, True])
def test_a_promise_of_ones_own(wrong):
    with CollectiveProgram("swap", Swap(wrong), 2) as program:
        for me in range(2):
            channel = MemoryChannel(1 - me, me)
            channel.put(Rank(1 - me).get_output_buffer()[0:1], Rank(me).get_input_buffer()[0:1], tb=0)
            channel.signal(tb=0)
            channel.wait(tb=0)
    if wrong:
        with pytest.raises(RuntimeError, match="output chunk 1: expected chunk 1 of rank 1"):
            program.check()
    else:
        assert program.check() is True


def test_nothing_is_promised():
    with CollectiveProgram("test", TestCollective(1, 2, 2), 1) as program:
        Rank(0).copy(Rank(0).get_output_buffer()[0:1], Rank(0).get_input_buffer()[0:1], tb=0)
    assert program.check() is False


def test_sizes_that_come_with_each_call():
    plan = json.loads(gather(2, AllGatherV(2)).to_json())
    assert plan["collective"] == "allgatherv"
    assert plan["extensions"] == {"runtime_sizes": 1}
    names = [op["name"] for op in plan["gpus"][0]["threadblocks"][0]["ops"]]
    assert names == ["vcopy", "vput", "nop", "signal", "wait"]
    assert gather(2, AllGatherV(2)).check() is False
    with CollectiveProgram("v", AllToAllV(2), 2):
        with pytest.raises(RuntimeError, match="cannot use scratch in a program with runtime sizes"):
            Buffer(0, 1)
    with pytest.raises((RuntimeError, ValueError), match="cannot replicate in a program with runtime sizes"):
        CollectiveProgram("v", AllToAllV(2), 2, instances=2)
