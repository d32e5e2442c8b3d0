"""The oldest stage's programs: both dialects, every method and keyword, and what is refused."""

import json

import pytest

from antiphon.language import (
    AllGather,
    AllReduce,
    AllToAll,
    Broadcast,
    Buffer,
    ChannelType,
    Check,
    CollectiveProgram,
    Json,
    MSCCLPPProgram,
    ReduceScatter,
    ReplicationPolicy,
    SendRecv,
    TestCollective,
    chunk,
    rank,
)
from antiphon.language.types import DataFormat
from antiphon.topologies import Topology, fully_connected, hub_and_spoke, line, ring, star


def plan(program):
    return json.loads(program.to_json())


def exchange(scratch="scratch", **how):
    """An allreduce of two ranks by packets."""
    for me in range(2):
        chunk(me, Buffer.input, 1 - me).put_packet(1 - me, scratch, index=0, sendtb=0, **how)
    for me in range(2):
        mine = chunk(me, Buffer.input, me)
        mine.reduce_packet(chunk(me, scratch, 0), recvtb=0).put_packet(1 - me, scratch, 1, 0)
    for me in range(2):
        chunk(me, scratch, 1).copy_packet(me, Buffer.input, 1 - me, sendtb=0)


def test_both_dialects_are_one_program(capsys):
    with MSCCLPPProgram("ll2", fully_connected(2), AllReduce(2, 2, True), 1, protocol="LL") as first:
        exchange("inbox", chan_type=ChannelType.sm)
        Json()
        assert Check()
    printed = capsys.readouterr().out
    with MSCCLPPProgram("ll2", AllReduce(2, 2, True), 2, 1, "LL") as second:
        exchange(Buffer.scratch)
    assert json.loads(printed) == plan(first) == plan(second)
    assert plan(first)["use_double_scratch_buffer"] and plan(first)["gpus"][0]["input_chunks"] == 2


def test_every_argument_reaches_the_plan():
    with MSCCLPPProgram(
        name="p", collective=SendRecv(2, 1, False), num_ranks=2, instances=3, protocol="Simple", instr_fusion=False,
        replication_policy=ReplicationPolicy.packed, num_threads_per_block=512, use_double_scratch_buffer=True,
        min_message_size=16, max_message_size=1024,
    ) as program:  # fmt: skip
        for me in range(2):
            c = chunk(me, Buffer.input, 0)
            c.put(1 - me, Buffer.output, 0, 0, ChannelType.proxy)
            c.signal(1 - me, Buffer.output, 0, 0, ChannelType.proxy)
            c.flush(1 - me, Buffer.output, 0, 0)
            chunk(1 - me, Buffer.output, 0).wait(me, Buffer.input, 0, 0, ChannelType.proxy)
    made = plan(program)
    keys = ["name", "num_threads_per_block", "use_double_scratch_buffer", "min_message_size", "max_message_size"]
    assert [made[key] for key in keys] == ["p", 512, True, 16, 1024]
    gpu = made["gpus"][0]
    assert (gpu["input_chunks"], len(gpu["threadblocks"])) == (3, 3)
    assert [op["name"] for op in gpu["threadblocks"][0]["ops"] if op["name"] != "nop"] == ["put", "signal", "flush", "wait"]


def put_signal(**how):
    def go():
        c = chunk(0, Buffer.input, 0)
        c.put(1, sendtb=0, **how)
        c.signal(1, sendtb=0, **how)
        chunk(1, Buffer.scratch, 0).wait(0, Buffer.input, 0, recvtb=0)

    return go


def forward(*arguments, **how):
    def go():
        first = chunk(0, Buffer.input, 0)
        first.put_packet(1, Buffer.scratch, 0, 0, ChannelType.sm)
        chunk(1, Buffer.scratch, 0).put_packet(0, Buffer.scratch, 1, 0, *arguments, **how)

    return go


SAME = {
    "buffer and chunk": (put_signal(buffer=Buffer.scratch, index=0), put_signal(chunk=Buffer.scratch, index=0)),
    "a reference for a buffer": (
        put_signal(buffer=Buffer.scratch, index=0),
        lambda: put_signal(chunk=chunk(1, Buffer.scratch, 0))(),
    ),
    "intermediate": (put_signal(buffer=Buffer.scratch, index=0), put_signal(buffer=Buffer.intermediate, index=0)),
    "a scratch buffer by name": (put_signal(buffer=Buffer.scratch, index=0), put_signal(buffer="scratch", index=0)),
    "format and type": (
        forward(DataFormat.packet, ChannelType.memory),
        forward(src_format=DataFormat.packet, chan_type=ChannelType.sm),
    ),
    "other and other_chunkref": (
        lambda: chunk(0, Buffer.input, 0).reduce(other=chunk(0, Buffer.input, 1), recvtb=0),
        lambda: chunk(0, Buffer.input, 0).reduce(
            other_chunkref=chunk(0, Buffer.input, 1), recvtb=0, channel_type=ChannelType.sm
        ),
    ),
    "packet_put": (
        lambda: chunk(0, Buffer.input, 0).put_packet(1, Buffer.scratch, 0, 0),
        lambda: chunk(0, Buffer.input, 0).packet_put(
            dst=1, chunk=Buffer.scratch, index=0, sendtb=0, chan_type=ChannelType.sm
        ),
    ),
    "named and placed temporary": (
        lambda: chunk(0, Buffer.input, 0).put_packet(1, Buffer.scratch, 0, 0, DataFormat.raw, ChannelType.port, Buffer.scratch, 0),
        lambda: chunk(0, Buffer.input, 0).put_packet(
            1, Buffer.scratch, 0, 0, chan_type=ChannelType.proxy, temp_buffer="scratch", temp_buffer_index=0
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("first", "second"), SAME.values(), ids=SAME)
def test_two_spellings_are_one(first, second):
    made = []
    for record in (first, second):
        with MSCCLPPProgram("p", AllReduce(2, 2, True), 2, 1) as program:
            record()
        made.append(plan(program))
    assert made[0] == made[1]


def test_the_factor_of_an_allreduce_counts_all_chunks():
    collective = AllReduce(2, 4, True)
    with MSCCLPPProgram("p", collective, 2, 1) as oldest:
        chunk(0, Buffer.input, 0, 4)
    with CollectiveProgram("p", collective, 2) as current:
        pass
    assert [plan(each)["gpus"][0]["input_chunks"] for each in (oldest, current)] == [4, 8]


def test_references_say_what_they_are(capsys):
    with MSCCLPPProgram("p", AllReduce(2, 4, True), 2, 1):
        c = chunk(1, Buffer.output, 2, size=2)
        assert (c.rank, c.buffer, c.index, c.size) == (1, Buffer.input, 2, 2)
        first, second = c.split(2)
        both = second.group(first)
        assert (both.index, both.size, repr(both)) == (2, 2, repr(c))
        assert (first.get_origin_rank(), c.get_origin_index(1), first.get_dst_rank(), c.get_dst_index(1)) == (1, 3, -1, 3)
        total = first.reduce(second, recvtb=0)
        assert (total.get_origin_index(), total.get_origin_rank()) == ([2, 3], [1, 1])
        total.print_chunk_info()
        assert chunk(0, "tmp", 3).buffer == "tmp"
        assert chunk(0, "other", 0).get_origin_rank() is None
        assert c.copy(1, sendtb=0).index == 2
    assert capsys.readouterr().out == "(1, 2) + (1, 3)\n"
    with MSCCLPPProgram("q", Broadcast(2, 1, False, 0), 2, 1):
        assert chunk(1, Buffer.input, 0) is None


def test_blocks_meet():
    with MSCCLPPProgram("p", AllToAll(2, 1, True), 2, 1) as program:
        rank(0).barrier([0, 1])
        rank(1).barrier(tb_list=[2])
    ops = [[op["name"] for op in block["ops"]] for block in plan(program)["gpus"][0]["threadblocks"]]
    assert ops == [["barrier"], ["barrier"]]


def test_what_is_wrong_is_printed(capsys):
    with MSCCLPPProgram("p", AllGather(2, 1, True), 2, 1):
        assert not Check()
    assert "Rank 0 chunk 1 of buffer o is incorrect" in capsys.readouterr().out


def test_topologies():
    links = {make.__name__: make(4).links for make in (fully_connected, hub_and_spoke, ring, line, star)}
    assert links["fully_connected"] == links["hub_and_spoke"] == [[int(a != b) for a in range(4)] for b in range(4)]
    assert links["ring"] == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]
    assert links["line"] == [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert links["star"] == [[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert Topology("own", [[0, 0], [1, 0]]).link(0, 1) == 1
    with pytest.raises(ValueError, match="rows of other lengths"):
        Topology("own", [[0], [1]])


def whole(*arguments, **how):
    return lambda c: MSCCLPPProgram("q", *arguments, **how)


COLLECTIVE = AllGather(3, 1, True)
REFUSALS = {
    "a link that is not there": (lambda c: c.put(2, sendtb=0), AssertionError, "No link from 0 to 2"),
    "reading over no link": (
        lambda c: c.reduce(chunk(2, Buffer.output, 2), recvtb=0), AssertionError, "No link from 0 to 2"
    ),
    "put to itself": (lambda c: c.put(0, Buffer.output, 0, sendtb=0), AssertionError, "put to the same rank"),
    "flush over memory": (lambda c: c.flush(1, sendtb=0, chan_type=ChannelType.sm), AssertionError, "port channel"),
    "copy to another rank": (lambda c: c.copy(1, Buffer.output, 0, sendtb=0), AssertionError, "put"),
    "no block": (lambda c: c.put(1), ValueError, "sendtb"),
    "never written": (
        lambda c: chunk(0, Buffer.scratch, 0).put(1, sendtb=0), AssertionError, "never been written"
    ),
    "no temporary": (
        lambda c: c.put_packet(1, Buffer.scratch, 0, 0, ChannelType.port), AssertionError, "temp_buffer"
    ),
    "buffer and chunk": (
        lambda c: c.put(1, Buffer.output, chunk=Buffer.output, sendtb=0), TypeError, "both buffer and chunk"
    ),
    "other and other_chunkref": (lambda c: c.reduce(c, 0, other_chunkref=c), TypeError, "both other and other_chunkref"),
    "nothing to reduce": (lambda c: c.reduce(recvtb=0), TypeError, "other is missing"),
    "no such chunk": (lambda c: chunk(0, Buffer.output, 9), RuntimeError, "it has 3 chunks"),
    "no buffer": (lambda c: chunk(0, 7, 0), TypeError, "BufferType"),
    "no channel": (lambda c: c.put(1, sendtb=0, chan_type="wire"), TypeError, "ChannelType.memory"),
    "too many arguments": (
        lambda c: c.put_packet(1, Buffer.scratch, 0, 0, DataFormat.raw, ChannelType.sm, None, -1, 1), TypeError, "at most 8"
    ),
    "a program in a program": (
        lambda c: whole(COLLECTIVE, 3, 1)(c).__enter__(), RuntimeError, "already a MSCCLPP Program in context"
    ),
    "protocol": (whole(COLLECTIVE, 3, 1, "LL128"), AssertionError, "Must be either Simple, LL"),
    "policy": (whole(COLLECTIVE, 3, replication_policy=ReplicationPolicy.none), ValueError, "CollectiveProgram"),
    "policy by name": (whole(COLLECTIVE, 3, replication_policy="packed"), TypeError, "ReplicationPolicy"),
    "collective": (whole(TestCollective(2, 1, 1), 2, 1), ValueError, "CollectiveProgram"),
    "no collective": (whole(fully_connected(2), 2), TypeError, "allowed a Collective"),
    "ranks": (whole(COLLECTIVE, 2, 1), ValueError, "its collective has 3"),
    "no ranks": (whole(COLLECTIVE), TypeError, "num_ranks"),
    "ranks of a topology": (whole(fully_connected(2), COLLECTIVE, 1), ValueError, "its collective has 3"),
    "more than two": (whole(SendRecv(3, 1, True), 3, 1), AssertionError, "SendRecv only supports 2 ranks"),
    "root": (whole(Broadcast(2, 1, True, 4), 2, 1), ValueError, "rank 4"),
    "twice": (whole(COLLECTIVE, 3, 1, num_ranks=3), TypeError, "twice"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused(call, error, text):
    with MSCCLPPProgram("p", line(3), COLLECTIVE, 1):
        c = chunk(0, Buffer.output, 0)
        with pytest.raises(error, match=text):
            call(c)


def test_outside_of_a_program():
    with MSCCLPPProgram("p", ReduceScatter(2, 1, True), 2, 1):
        c = chunk(0, Buffer.input, 0)
    for call in (lambda: chunk(0, Buffer.input, 0), lambda: rank(0), Json, Check):
        with pytest.raises(RuntimeError, match="No Program in context"):
            call()
    with pytest.raises(RuntimeError, match="another program"):
        c.copy(0, Buffer.scratch, 0, sendtb=0)


def test_signals_without_waits_are_refused():
    with MSCCLPPProgram("p", AllGather(2, 1, True), 2, 1) as program:
        chunk(0, Buffer.output, 0).signal(1, sendtb=0)
    with pytest.raises(RuntimeError, match=r"1 signals .*test_oldest.py:\d+"):
        program.to_json()
