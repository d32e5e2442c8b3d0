"""The middle stage's spellings, each beside what it says in the current one, and what is refused."""

import json

import pytest

import antiphon.language as lang
from antiphon.language import (
    AllGather,
    AllReduce,
    Buffer,
    BufferType,
    Channel,
    ChannelType,
    Chunk,
    CollectiveProgram,
    Loop,
    LoopIterationContext,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceOperationType,
    Semaphore,
    SwitchChannel,
    SyncType,
    TestCollective,
)

OPTIONS = {"instr_fusion": False, "auto_sync": False, "compatible": True}


def plan(record, ranks=2):
    """The plan of a program with 4 chunks each way."""
    with CollectiveProgram("p", TestCollective(ranks, 4, 4), ranks, **OPTIONS) as program:
        record()
    return json.loads(program.to_json())


class Fixed:
    """What both spellings use."""

    def __init__(self):
        self.a, self.b = (Rank(0).get_input_buffer()[i : i + 1] for i in range(2))
        self.far = Rank(1).get_input_buffer()[0:1]
        self.box, self.far_box = Buffer(0, 2)[0:1], Buffer(1, 2)[0:1]
        self.rank = Rank(0)


def pair(old, new, kind):
    """The calls over two channels a pair, by either class."""
    classes = {"memory": MemoryChannel, "port": PortChannel}

    def record(make, calls):
        def go():
            f, (one, other) = Fixed(), (make(1, 0), make(0, 1))
            calls(one, other, f)

        return go

    old_make = lambda dst, src: Channel(dst, src, getattr(Channel, kind))  # noqa: E731
    return record(old_make, old), record(classes[kind], new)


def alone(calls):
    return lambda: calls(Fixed())


def loop_of(kind):
    def go():
        f = Fixed()
        one, other = Channel(1, 0), Channel(0, 1)
        with kind(unit=2**14, num_chunks=2) as it:
            named = {"iter_context": it} if kind is Loop.iteration else {}
            f.rank.copy(f.a, f.b, tb=0, **named)
            one.signal(tb=0, **named)
            other.wait(tb=0, **named)
            s = Semaphore(0, 0)
            s.release(tb=1, **named)
            s.acquire(tb=1, **named)
            f.rank.reduce(f.a, [f.b], tb=1, **named)

    return go


def switch(calls, **how):
    def go():
        f = Fixed()
        how_made = how or {"rank_list": [0, 1], "buffer_type": BufferType.input}
        Channel(1, 0)
        calls(SwitchChannel(**how_made), f)

    return go


both = SyncType.both
SAME = {
    "signal": pair(
        lambda c, d, f: (c.signal(0, sync="before"), d.wait(0, sync="after")),
        lambda c, d, f: (c.signal(0, SyncType.before), d.wait(0, SyncType.after)),
        "memory",
    ),
    "relaxed": pair(
        lambda c, d, f: (c.relaxedSignal(0, SyncType.none), d.relaxedWait(tb=0, data_sync=both)),
        lambda c, d, f: (c.signal(0, SyncType.none, relaxed=True), d.wait(0, both, relaxed=True)),
        "memory",
    ),
    "data": pair(
        lambda c, d, f: (c.put(f.far, f.a, tb=0), c.get(f.a, f.far, tb=0), c.put_packets(f.far_box, f.a, tb=0)),
        lambda c, d, f: (c.put(f.far, f.a, tb=0), c.get(f.a, f.far, tb=0), c.put_packets(f.far_box, f.a, tb=0)),
        "memory",
    ),
    "reduce": pair(
        lambda c, d, f: c.reduce(f.a, [f.far], tb=0, op="max"),
        lambda c, d, f: c.reduce(f.a, [f.far], tb=0, reduce_op=ReduceOperationType.max),
        "memory",
    ),
    "port": pair(
        lambda c, d, f: (c.put_with_signal(f.far, f.a, 0), c.flush(0, sync="none"), d.wait(0, sync="both")),
        lambda c, d, f: (c.put_with_signal(f.far, f.a, 0), c.flush(0, SyncType.none), d.wait(0)),
        "port",
    ),
    "port and flush": pair(
        lambda c, d, f: (c.put_with_signal_and_flush(f.far, f.a, tb=0), d.wait(0)),
        lambda c, d, f: (c.put_with_signal_and_flush(f.far, f.a, tb=0), d.wait(0)),
        "port",
    ),
    "copy on the class": (
        alone(lambda f: Rank.copy(f.a, f.b)),
        alone(lambda f: f.rank.copy(f.a, f.b, tb=0)),
    ),
    "method on the class": (
        alone(lambda f: Rank.copy(f.rank, f.a, f.b, tb=3)),
        alone(lambda f: f.rank.copy(f.a, f.b, tb=3)),
    ),
    "reduce on the class": (
        alone(lambda f: Rank.reduce(f.a, f.b, "max", 2)),
        alone(lambda f: f.rank.reduce(f.a, [f.b], tb=2, reduce_op=ReduceOperationType.max)),
    ),
    "reduce on the class by names": (
        alone(lambda f: Rank.reduce(dst_chunk=f.a, src_chunk=f.b)),
        alone(lambda f: f.rank.reduce(f.a, [f.b], tb=0)),
    ),
    "reduce one chunk": (
        alone(lambda f: f.rank.reduce(f.a, f.b)),
        alone(lambda f: f.rank.reduce(f.a, [f.b], tb=0)),
    ),
    "reduce one chunk, op and block": (
        alone(lambda f: f.rank.reduce(f.a, f.b, ReduceOperationType.min, 1)),
        alone(lambda f: f.rank.reduce(f.a, [f.b], tb=1, reduce_op=ReduceOperationType.min)),
    ),
    "reduce by names": (
        alone(lambda f: f.rank.reduce(dst_chunk=f.a, src_chunk=f.b, op="min", tb=1)),
        alone(lambda f: f.rank.reduce(f.a, [f.b], tb=1, reduce_op=ReduceOperationType.min)),
    ),
    "chunk of the input": (
        alone(lambda f: f.rank.copy(Chunk(0, 0, 1), Chunk(rank=0, index=1, size=1), tb=0)),
        alone(lambda f: f.rank.copy(f.a, f.b, tb=0)),
    ),
    "semaphore with a capacity": (
        alone(lambda f: Rank.Semaphore(rank=0, size=3, tag=1).release(0, sync="none")),
        alone(lambda f: Semaphore(0, 0).release(0, SyncType.none)),
    ),
    "semaphore of a rank": (
        alone(lambda f: Semaphore(f.rank, initial_value=2).acquire(0)),
        alone(lambda f: Semaphore(0, 2).acquire(0)),
    ),
    "loop": (loop_of(Loop.iteration), loop_of(LoopIterationContext)),
    "load-reduce to a chunk": (
        switch(lambda s, f: s.at_rank(0).group_load_reduce(1, 1, f.a, op="sum", tb=2)),
        switch(lambda s, f: s.at_rank(0).reduce(1, 1, f.a, 2)),
    ),
    "store a chunk": (
        switch(lambda s, f: s.at_rank(0).group_store(f.a, buffer_offset=1, size=1)),
        switch(lambda s, f: s.at_rank(0).broadcast(f.a, 1, 1, 0)),
    ),
    "load-reduce to where the store takes it": (
        switch(lambda s, f: (s.at_rank(0).group_load_reduce(1, 1), s.at_rank(0).group_store(f.a, 1, 1))),
        switch(lambda s, f: (s.at_rank(0).reduce(1, 1, f.a, 0), s.at_rank(0).broadcast(f.a, 1, 1, 0))),
    ),
    "load-reduce in place": (
        switch(lambda s, f: (s.at_rank(0).group_reduce(1, 1), s.at_rank(0).group_broadcast(1, 1))),
        switch(lambda s, f: (s.at_rank(0).reduce(1, 1, f.b, 0), s.at_rank(0).broadcast(f.b, 1, 1, 0))),
    ),
    "load-reduces of several blocks before their stores": (
        switch(lambda s, f: [s.at_rank(0).group_load_reduce(i, 1, tb=i) for i in (0, 1)]
               + [s.at_rank(0).group_store(i, 1, tb=i) for i in (0, 1)]),
        switch(lambda s, f: [s.at_rank(0).reduce(i, 1, c, i) for i, c in enumerate((f.a, f.b))]
               + [s.at_rank(0).broadcast(c, i, 1, i) for i, c in enumerate((f.a, f.b))]),
    ),
    "load-reduce without a store": (
        switch(lambda s, f: s.at_rank(0).group_load_reduce(1, 1)),
        switch(lambda s, f: s.at_rank(0).reduce(1, 1, f.b, 0)),
    ),
    "switch of all, without a rank": (
        switch(lambda s, f: s.group_store(f.a, 1, 1), rank_list=[], buffer=Buffer.input, tag=4),
        switch(lambda s, f: s.broadcast(0, f.a, 1, 1, 0)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SAME.values(), ids=SAME)
def test_it_is_what_the_current_stage_writes_otherwise(old, new):
    assert plan(old) == plan(new)


def connected(program):
    """For every rank and block, the position of its channels among those to the same peer."""
    found = []
    for gpu in json.loads(program.to_json())["gpus"]:
        peers = gpu["channels"][0]["connected_to"]
        ids = [block["channels"][0]["channel_ids"] for block in gpu["threadblocks"]]
        found.append([[peers[: i + 1].count(peers[i]) - 1 for i in each] for each in ids])
    return found


@pytest.mark.parametrize("other", [["b", "a"], [1, 0], ["b", None, "a"]])
def test_tags_pair_channels(other):
    with CollectiveProgram("p", AllGather(2, 1, True), 2) as program:
        here = {tag: Channel(1, 0, tag=tag) for tag in sorted(other, key=str)}
        there = {tag: Channel(dst_rank=0, src_rank=1, channel_type=Channel.memory, tag=tag) for tag in other}
        for tb, tag in enumerate(here):
            here[tag].signal(tb=tb)
            there[tag].wait(tb=tb)
    # Block by block, the two ranks use channels of the same position: those are paired.
    one, other = connected(program)
    assert one == other


def test_tags_without_counterparts_are_refused():
    with CollectiveProgram("p", AllGather(2, 1, True), 2) as program:
        Channel(1, 0, tag=1)
        Channel(0, 1, tag=2)
    with pytest.raises(RuntimeError, match="saw tags 1 only on rank 0 and 2 only on rank 1"):
        program.to_json()


def test_without_a_rank_it_is_the_one_spoken_of_last():
    with CollectiveProgram("p", TestCollective(3, 4, 4), 3, **OPTIONS) as program:
        anywhere = Semaphore(initial_value=1)
        with pytest.raises(RuntimeError, match="spoken of none yet"):
            anywhere.release(0)
        Rank(2)
        anywhere.release(0)
        Buffer(1, 1)
        anywhere.release(0)
        anywhere.release(1)
        Channel(2, 0)
        anywhere.release(0)
        with pytest.raises(RuntimeError, match="made without one"):
            _ = anywhere.id
    gpus = json.loads(program.to_json())["gpus"]
    assert [gpu["semaphores"] for gpu in gpus] == [[{"init_value": 1}]] * 3
    blocks = [[[op["name"] for op in tb["ops"] if op["name"] != "nop"] for tb in gpu["threadblocks"]] for gpu in gpus]
    assert blocks == [[["sem_release"]], [["sem_release"]] * 2, [["sem_release"]]]


def test_a_barrier_of_nobody_is_one_of_everybody():
    with CollectiveProgram("p", TestCollective(1, 4, 4), 1) as program:
        rank = Rank(0)
        chunks = rank.get_input_buffer()
        Channel(0, 0)
        rank.copy(chunks[0:1], chunks[1:2])
        rank.barrier(tb_list=[])
        rank.copy(chunks[2:3], chunks[3:4], tb=2)
    blocks = json.loads(program.to_json())["gpus"][0]["threadblocks"]
    barriers = [[op["num_threadblocks"] for op in block["ops"] if op["name"] == "barrier"] for block in blocks]
    assert barriers == [[2], [], [2]]


def test_the_current_stage_keeps_its_refusals():
    names = {name: getattr(lang, name) for name in ("CollectiveProgram", "TestCollective", "Rank", "SwitchChannel")}
    source = """
with CollectiveProgram("p", TestCollective(2, 4, 4), 2):
    chunks = Rank(0).get_input_buffer()
    CALL
"""
    calls = {
        "Rank(0).copy(chunks[0:1], chunks[1:2])": "tb or tb_group",
        "Rank(0).barrier([])": "requires at least",
        "SwitchChannel([], 'input')": "1 or more",
    }
    for call, text in calls.items():
        with pytest.raises((RuntimeError, ValueError), match=text):
            exec(source.replace("CALL", call), dict(names, __name__="theirs"))
        # The same in a program whose source speaks of channels as the middle stage does.
        middle = dict(names, __name__="theirs", Channel=Channel)
        exec(source.replace("CALL", f"{call}; Channel"), middle)


REFUSALS = {
    "get over a port": (lambda f: Channel(1, 0, "port").get(f.a, f.far, tb=0), RuntimeError, "MemoryChannel"),
    "reduce over a port": (lambda f: Channel(1, 0, Channel.port).reduce(f.a, [f.far], tb=0), RuntimeError, "MemoryCh"),
    "flush over memory": (lambda f: Channel(1, 0).flush(0), RuntimeError, "PortChannel"),
    "signalling put over memory": (lambda f: Channel(1, 0).put_with_signal(f.far, f.a, 0), RuntimeError, "PortChannel"),
    "switch channel as a channel": (lambda f: Channel(1, 0, ChannelType.switch), TypeError, "SwitchChannel"),
    "no such rank": (lambda f: Channel(2, 0), RuntimeError, "rank 2"),
    "two syncs": (lambda f: Channel(1, 0).signal(0, both, sync="none"), TypeError, "data_sync"),
    "two ops": (lambda f: f.rank.reduce(f.a, f.b, op="min", reduce_op="max"), TypeError, "reduce_op"),
    "unknown sync": (lambda f: Channel(1, 0).signal(0, sync="later"), TypeError, "SyncType.both"),
    "loop that is not open": (
        lambda f: f.rank.copy(f.a, f.b, tb=0, iter_context=LoopIterationContext(1, 1)), RuntimeError, "not the open one"
    ),
    "one chunk and dst_chunk": (lambda f: f.rank.reduce(f.a, f.b, dst_chunk=f.box), TypeError, "other_chunks"),
    "nothing to reduce": (lambda f: f.rank.reduce(f.a), TypeError, "other_chunks is missing"),
    "no value to start at": (lambda f: Semaphore(0), TypeError, "initial_value"),
    "more than the capacity": (lambda f: Rank.Semaphore(rank=0, size=1, initial_value=2), ValueError, "capacity"),
    "chunk of two numbers": (lambda f: Chunk(0, 1), TypeError, r"Chunk\(rank, index, size\)"),
    "chunk with an odd name": (lambda f: Chunk(0, 1, length=1), TypeError, r"Chunk\(rank, index, size\)"),
    "switch without a buffer": (lambda f: SwitchChannel([0, 1]), TypeError, "buffer_type"),
    "store without a place": (
        lambda f: SwitchChannel([0, 1], "input").at_rank(0).group_store(f.a), TypeError, "buffer_offset is missing"
    ),
    "store from elsewhere": (
        lambda f: [
            (g := SwitchChannel([0, 1], "input").at_rank(0)).group_load_reduce(1, 1),
            f.rank.copy(f.box, f.a, tb=0),
            g.group_store(f.box, 1, 1),
        ],
        RuntimeError,
        "dst_chunk",
    ),
    "copies of two ranks": (lambda f: Rank.copy(f.a, f.far), RuntimeError, "rank 1"),
    "policy of the oldest stage": (
        lambda f: CollectiveProgram("q", AllReduce(2, 1, True), 2, replication_policy=lang.ReplicationPolicy.duplicated),
        TypeError,
        "ReplicationPolicy.interleaved",
    ),
    "argument of the oldest stage": (
        lambda f: CollectiveProgram("q", AllReduce(2, 1, True, 2), 2), ValueError, "MSCCLPPProgram"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused(call, error, text):
    with CollectiveProgram("p", TestCollective(2, 4, 4), 2):
        f = Fixed()
        with pytest.raises(error, match=text):
            call(f)


def test_peers_buffers_are_checked_at_the_end():
    with CollectiveProgram("p", TestCollective(2, 4, 4), 2) as program:
        group = SwitchChannel([0, 1], buffer=Buffer.scratch)
        box = Buffer(0, 2)
        group.at_rank(0).group_store(box[0:1], 1, 1)
    with pytest.raises(RuntimeError, match="rank 1"):
        program.to_json()


def test_errors_name_the_call_as_this_stage_spells_it():
    with CollectiveProgram("named", AllReduce(2, 1, True), 2):
        switch = SwitchChannel(rank_list=[0, 1], buffer_type=Buffer.input).at_rank(0)
        two = Rank(0).get_output_buffer()[0:2]
        for call, arguments in [("group_load_reduce", (0, 1, two)), ("group_store", (two, 0, 1))]:
            with pytest.raises(RuntimeError, match=f"^cannot {call}: saw runs of 1 and 2 chunks"):
                getattr(switch, call)(*arguments)
