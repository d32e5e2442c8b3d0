"""Every operation as the plan has it, and what each refuses."""

import pytest

from antiphon.language import *
from conftest import ops, plan

NONE = SyncType.none


def i(index, size=1):
    return {"type": "i", "index": index, "size": size}


def o(index, size=1):
    return {"type": "o", "index": index, "size": size}


def s(index, size=1):
    return {"type": "s", "index": index, "size": size}


def remote(index, size=1, buffer_id=0):
    return {"buffer_id": buffer_id, "index": index, "size": size}


class Things:
    """What operations of two ranks work on."""

    def __init__(self):
        self.rank = Rank(0)
        self.input = self.rank.get_input_buffer()
        self.output = self.rank.get_output_buffer()
        self.scratch = Buffer(0, 4)
        self.far_input = Rank(1).get_input_buffer()
        self.far_output = Rank(1).get_output_buffer()
        self.far_scratch = Buffer(1, 4)
        self.memory, self.memory_back = MemoryChannel(1, 0), MemoryChannel(0, 1)
        self.port, self.port_back = PortChannel(1, 0), PortChannel(0, 1)
        self.switch = SwitchChannel([0, 1], BufferType.input)
        self.packet_switch = SwitchChannel([0, 1], BufferType.scratch)
        self.semaphore = Semaphore(0, 1)


# Name, call, and the operation without its name.
OPERATIONS = {
    "copy": (
        "copy",
        lambda t: t.rank.copy(t.output[0:2], t.input[2:4], tb=0),
        {"src_buff": [i(2, 2)], "dst_buff": [o(0, 2)]},
    ),
    "copy_packets": (
        "cpkt",
        lambda t: t.rank.copy_packets(t.scratch[1:2], t.input[0:1], tb=0),
        {"src_buff": [i(0)], "dst_buff": [s(1)]},
    ),
    "unpack_packets": (
        "upkt",
        lambda t: t.rank.unpack_packets(t.output[1:2], t.scratch[3:4], tb=0),
        {"src_buff": [s(3)], "dst_buff": [o(1)]},
    ),
    "reduce": (
        "re",
        lambda t: t.rank.reduce(t.input[0:1], [t.input[1:2], t.output[2:3]], tb=0),
        {"src_buff": [i(0), i(1), o(2)], "dst_buff": [i(0)], "reduce_op": "sum"},
    ),
    "reduce to another chunk": (
        "re",
        lambda t: t.rank.reduce(
            t.input[0:1], [t.input[1:2]], tb=0, dst_chunk=t.output[0:1], reduce_op=ReduceOperationType.max
        ),
        {"src_buff": [i(0), i(1)], "dst_buff": [o(0)], "reduce_op": "max"},
    ),
    "reduce packets": (
        "repkt",
        lambda t: t.rank.reduce(
            t.input[0:1], [t.scratch[1:2]], tb=0, packet=True, reduce_op=ReduceOperationType.min
        ),
        {"src_buff": [i(0), s(1)], "dst_buff": [i(0)], "reduce_op": "min"},
    ),
    "barrier of one": ("nop", lambda t: t.rank.barrier([0]), {}),
    "put": (
        "put",
        lambda t: t.memory.put(t.far_output[1:3], t.input[0:2], tb=0),
        {"src_buff": [i(0, 2)], "dst_buff": [remote(1, 2)], "channel_type": "memory"},
    ),
    "get": (
        "get",
        lambda t: t.memory.get(t.output[1:2], t.far_input[0:1], tb=0),
        {"src_buff": [remote(0)], "dst_buff": [o(1)], "channel_ids": [0], "channel_type": "memory"},
    ),
    "put_packets": (
        "ppkt",
        lambda t: t.memory.put_packets(t.far_scratch[2:3], t.input[0:1], tb=0),
        {"src_buff": [i(0)], "dst_buff": [remote(2)], "channel_type": "memory"},
    ),
    "read_put_packets": (
        "rppkt",
        lambda t: t.memory.read_put_packets(t.far_scratch[2:3], t.scratch[0:1], tb=0),
        {"src_buff": [s(0)], "dst_buff": [remote(2)], "channel_type": "memory"},
    ),
    "read reduce": (
        "rre",
        lambda t: t.memory.reduce(t.input[0:1], [t.far_input[0:1], t.far_input[1:2]], tb=0),
        {"src_buff": [i(0), remote(0), remote(1)], "dst_buff": [i(0)], "channel_type": "memory", "reduce_op": "sum"},
    ),
    "read reduce to another chunk": (
        "rre",
        lambda t: t.memory.reduce(
            t.input[0:1],
            [t.far_input[0:1]],
            tb=0,
            local_dst_chunk=t.output[3:4],
            reduce_op=ReduceOperationType.prod,
        ),
        {"src_buff": [i(0), remote(0)], "dst_buff": [o(3)], "channel_type": "memory", "reduce_op": "prod"},
    ),
    "port put": (
        "put",
        lambda t: t.port.put(t.far_output[1:3], t.input[0:2], tb=0),
        {"src_buff": [i(0, 2)], "dst_buff": [remote(1, 2)], "channel_ids": [0], "channel_type": "port"},
    ),
    "port put_packets": (
        "ppkt",
        lambda t: t.port.put_packets(t.far_scratch[1:2], t.scratch[0:1], 0),
        {"src_buff": [s(0)], "dst_buff": [remote(1)], "channel_ids": [0], "channel_type": "port"},
    ),
    "port read_put_packets": (
        "rppkt",
        lambda t: t.port.read_put_packets(t.far_scratch[1:2], t.scratch[0:1], tb=0),
        {"src_buff": [s(0)], "dst_buff": [remote(1)], "channel_ids": [0], "channel_type": "port"},
    ),
    "put_with_signal": (
        "pws",
        lambda t: (t.port.put_with_signal(t.far_output[0:1], t.input[0:1], 0), t.port_back.wait(0)),
        {"src_buff": [i(0)], "dst_buff": [remote(0)], "channel_ids": [0], "channel_type": "port"},
    ),
    "put_with_signal_and_flush": (
        "pwsf",
        lambda t: (t.port.put_with_signal_and_flush(t.far_output[0:1], t.input[0:1], tb=0), t.port_back.wait(0)),
        {"src_buff": [i(0)], "dst_buff": [remote(0)], "channel_ids": [0], "channel_type": "port"},
    ),
    "flush": ("flush", lambda t: t.port.flush(0, data_sync=NONE), {"channel_ids": [0], "channel_type": "port"}),
    "signal": (
        "signal",
        lambda t: (t.memory.signal(0, data_sync=NONE), t.memory_back.wait(0)),
        {"channel_ids": [0], "channel_type": "memory"},
    ),
    "relaxed signal": (
        "rlxsignal",
        lambda t: (t.memory.signal(0, NONE, relaxed=True), t.memory_back.wait(0)),
        {"channel_ids": [0], "channel_type": "memory"},
    ),
    "wait": (
        "wait",
        lambda t: (t.memory.wait(tb=0, data_sync=NONE), t.memory_back.signal(0)),
        {"channel_ids": [0], "channel_type": "memory"},
    ),
    "relaxed wait": (
        "rlxwait",
        lambda t: (t.memory.wait(0, NONE, True), t.memory_back.signal(0)),
        {"channel_ids": [0], "channel_type": "memory"},
    ),
    "port signal": (
        "signal",
        lambda t: (t.port.signal(0, NONE), t.port_back.wait(0)),
        {"channel_ids": [0], "channel_type": "port"},
    ),
    "port wait": (
        "wait",
        lambda t: (t.port.wait(0, data_sync=NONE), t.port_back.signal(0)),
        {"channel_ids": [0], "channel_type": "port"},
    ),
    "acquire": ("sem_acquire", lambda t: t.semaphore.acquire(tb=0, data_sync=NONE), {"semaphore_ids": [0]}),
    "release": ("sem_release", lambda t: t.semaphore.release(0, NONE), {"semaphore_ids": [0]}),
    "switch reduce": (
        "glre",
        lambda t: t.switch.at_rank(0).reduce(buffer_offset=1, size=2, dst_chunk=t.output[0:2], tb=0),
        {
            "buffer_type": "i",
            "buffer_offset": 1,
            "size": 2,
            "dst_chunk": {"rank": 0, "type": "o", "index": 0, "size": 2},
            "channel_ids": [0],
            "channel_type": "switch",
            "reduce_op": "sum",
        },
    ),
    "switch broadcast": (
        "gstore",
        lambda t: t.switch.at_rank(0).broadcast(t.output[0:2], buffer_offset=1, size=2, tb=0),
        {
            "src_buff": [{"rank": 0} | o(0, 2)],
            "dst_buff": [{"switch_channel_id": 0, "index": 1, "size": 2}],
            "channel_type": "switch",
        },
    ),
    "switch broadcast_packets": (
        "gstorepkt",
        lambda t: t.packet_switch.at_rank(0).broadcast_packets(t.scratch[0:1], 3, 1, 0),
        {
            "src_buff": [{"rank": 0} | s(0)],
            "dst_buff": [{"switch_channel_id": 0, "index": 3, "size": 1}],
            "channel_type": "switch",
        },
    ),
}


@pytest.mark.parametrize(("name", "call", "fields"), OPERATIONS.values(), ids=OPERATIONS)
def test_each_operation_is_written_as_the_format_has_it(bare, name, call, fields):
    call(Things())
    assert ops(bare) == [{"name": name} | fields]


def test_switch_operations_on_the_channel_take_the_rank_first(bare):
    t = Things()
    t.switch.reduce(0, 1, 2, t.output[0:2], 0, ReduceOperationType.max)
    t.switch.broadcast(0, t.output[0:2], 1, 2, 0)
    t.packet_switch.broadcast_packets(0, t.scratch[0:1], 3, 1, 0)
    direct = ops(bare)
    with CollectiveProgram("bare", TestCollective(2, 4, 4), 2, instr_fusion=False, auto_sync=False) as program:
        t = Things()
        view, packets = t.switch.at_rank(0), t.packet_switch.at_rank(0)
        view.reduce(1, 2, t.output[0:2], 0, reduce_op=ReduceOperationType.max)
        view.broadcast(t.output[0:2], 1, 2, 0)
        packets.broadcast_packets(t.scratch[0:1], 3, 1, 0)
    assert direct == ops(program)
    assert [op["name"] for op in direct] == ["glre", "gstore", "gstorepkt"]


def test_channels_say_what_they_are(bare):
    t = Things()
    assert (t.memory.src_rank, t.memory.dst_rank, t.memory.channel_type) == (0, 1, ChannelType.memory)
    assert (t.port_back.src_rank, t.port_back.dst_rank, t.port_back.channel_type) == (1, 0, ChannelType.port)
    assert t.switch.rank_group == RankGroup(size=len(t.switch.rank_list), ranks=t.switch.rank_list)
    assert (t.switch.rank_list, t.switch.buffer_type, t.switch.channel_type) == (
        [0, 1],
        BufferType.input,
        ChannelType.switch,
    )
    assert (t.switch.channel_ids, t.packet_switch.channel_ids) == ({0: 0, 1: 0}, {0: 1, 1: 1})
    assert (t.semaphore.rank, t.semaphore.initial_value) == (0, 1)
    gpu = plan(bare)["gpus"][0]
    assert gpu["semaphores"] == [{"init_value": 1}]
    assert gpu["channels"] == [
        {"channel_type": "memory", "connected_to": [1]},
        {"channel_type": "port", "connected_to": [1]},
        {"channel_type": "switch", "buffer_type": "i", "rank_groups": [{"size": 2, "ranks": [0, 1]}]},
        {"channel_type": "switch", "buffer_type": "s", "rank_groups": [{"size": 2, "ranks": [0, 1]}]},
    ]


def test_operations_leave_their_traces_in_the_tables(bare):
    t = Things()
    t.memory.put(t.far_output[0:1], t.input[0:1], tb=1)
    t.port.put(t.far_output[0:1], t.input[0:1], tb=1)
    t.port.put_packets(t.far_scratch[0:1], t.scratch[0:1], tb=1)
    gpu = plan(bare)["gpus"][0]
    assert gpu["remote_buffers"] == [
        {"rank": 1, "type": "o", "access_channel_types": ["memory", "port"]},
        {"rank": 1, "type": "s", "access_channel_types": ["port"]},
    ]
    first, second = gpu["threadblocks"]
    assert first == {"id": 0, "ops": [], "channels": [], "remote_buffer_refs": []}
    assert second["channels"] == [
        {"channel_type": "memory", "channel_ids": [0]},
        {"channel_type": "port", "channel_ids": [0]},
    ]
    assert second["remote_buffer_refs"] == [
        {"access_channel_type": "memory", "remote_buffer_ids": [0]},
        {"access_channel_type": "port", "remote_buffer_ids": [0, 1]},
    ]


def test_a_group_shares_an_operation(bare):
    t = Things()
    group = ThreadBlockGroup([2, 0])
    t.rank.copy(t.output[0:1], t.input[0:1], tb_group=group)
    t.rank.copy(t.output[1:2], t.input[1:2], tb=0, tb_group=group)
    t.memory.put(t.far_output[0:1], t.input[0:1], tb_group=group)
    blocks = plan(bare)["gpus"][0]["threadblocks"]
    found = [[(op["name"], op["tbg_info"]) for op in block["ops"]] for block in blocks]
    first, second = {"tb_id": 0, "tbg_size": 2}, {"tb_id": 1, "tbg_size": 2}
    assert found == [[("copy", second), ("copy", second), ("put", second)], [], [("copy", first), ("put", first)]]


def test_groups_know_their_blocks():
    group = ThreadBlockGroup(tb_list=[4, 7, 1])
    assert (group.tb_list, group.numtb()) == ([4, 7, 1], 3)
    assert [group.get_internal_id(tb) for tb in (4, 7, 1)] == [0, 1, 2]
    with pytest.raises(ValueError, match="block 5 of the thread-block group"):
        group.get_internal_id(5)
    with pytest.raises(ValueError, match="block 4 twice"):
        ThreadBlockGroup([4, 1, 4])


def test_barriers_are_numbered_by_their_blocks_in_order(bare):
    rank = Rank(0)
    for blocks in ([0, 1], [1, 0], [0, 1], [0, 1, 2]):
        rank.barrier(blocks)
    assert [(op["barrier_id"], op["num_threadblocks"]) for op in ops(bare)] == [(0, 2), (1, 2), (0, 2), (2, 3)]


def test_a_pipeline_holds_what_is_written_inside(bare):
    t = Things()
    with LoopIterationContext(unit=2**10, num_chunks=3) as loop:
        assert (loop.unit, loop.num_chunks) == (1024, 3)
        t.rank.copy(t.output[0:1], t.input[0:1], tb=1)
        t.semaphore.release(1, NONE)
        t.rank.copy(t.output[1:2], t.input[1:2], tb=0)
    t.rank.copy(t.output[2:3], t.input[2:3], tb=0)
    first, second = (ops(bare, tb=tb) for tb in (0, 1))
    assert [op["name"] for op in first] == ["pipeline", "copy"]
    assert first[0]["iter_context"] == {"unit_size": 1024, "num_chunks": 3}
    (pipeline,) = second
    assert [op["name"] for op in pipeline["ops"]] == ["copy", "sem_release"]


def test_pipelines_are_not_nested(bare):
    with LoopIterationContext(1024, 1):
        with pytest.raises(RuntimeError, match="^Nested Pipelines are not Supported.$"):
            LoopIterationContext(1024, 1).__enter__()
    for sizes in [(0, 1), (1024, 0), (-1, 1)]:
        with pytest.raises(ValueError, match="allowed 1 or more of both"):
            LoopIterationContext(*sizes).__enter__()


@pytest.mark.parametrize(
    ("sync", "names"),
    [
        (SyncType.none, ["sem_acquire"]),
        (SyncType.before, ["nop", "sem_acquire"]),
        (SyncType.after, ["sem_acquire", "nop"]),
        (SyncType.both, ["nop", "sem_acquire", "nop"]),
        (None, ["nop", "sem_acquire", "nop"]),
    ],
)
def test_threads_meet_where_data_sync_says(bare, sync, names):
    semaphore = Semaphore(rank=0, initial_value=1)
    semaphore.acquire(0, *([] if sync is None else [sync]))
    assert [op["name"] for op in ops(bare)] == names


# What every call refuses: the call, its exception and a part of the text.
REFUSALS = {
    "rank beyond": (lambda t: Rank(2), RuntimeError, "rank 2: allowed 0 to 1"),
    "rank before": (lambda t: Rank(-1), RuntimeError, "rank -1"),
    "memory channel to a rank beyond": (lambda t: MemoryChannel(2, 0), RuntimeError, "rank 2"),
    "memory channel from a rank beyond": (lambda t: MemoryChannel(0, 2), RuntimeError, "rank 2"),
    "port channel to a rank beyond": (lambda t: PortChannel(2, 0), RuntimeError, "rank 2"),
    "switch channel of a rank beyond": (lambda t: SwitchChannel([0, 2], BufferType.input), RuntimeError, "rank 2"),
    "switch channel of nobody": (lambda t: SwitchChannel([], BufferType.input), ValueError, "1 or more"),
    "switch channel of a rank twice": (lambda t: SwitchChannel([0, 0], BufferType.input), ValueError, "different ranks"),
    "switch channel over no buffer": (lambda t: SwitchChannel([0, 1], 3), TypeError, "BufferType.input"),
    "semaphore of a rank beyond": (lambda t: Semaphore(2, 0), RuntimeError, "rank 2"),
    "copy from another rank": (
        lambda t: t.rank.copy(t.output[0:1], t.far_input[0:1], tb=0),
        RuntimeError,
        "saw a source chunk of rank 1, allowed rank 0",
    ),
    "copy to another rank": (
        lambda t: t.rank.copy(t.far_output[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "saw a destination chunk of rank 1",
    ),
    "copy of other sizes": (lambda t: t.rank.copy(t.output[0:2], t.input[0:1], tb=0), RuntimeError, "equal sizes"),
    "copy without a block": (lambda t: t.rank.copy(t.output[0:1], t.input[0:1]), RuntimeError, "tb or tb_group"),
    "copy on a block before": (lambda t: t.rank.copy(t.output[0:1], t.input[0:1], -1), RuntimeError, "block -1"),
    "copy on a block of another group": (
        lambda t: t.rank.copy(t.output[0:1], t.input[0:1], tb=3, tb_group=ThreadBlockGroup([0, 1])),
        ValueError,
        "block 3",
    ),
    "copy of no chunk": (lambda t: t.rank.copy(t.output[0:1], 1, tb=0), TypeError, "slice a buffer"),
    "copy of chunks beyond": (
        lambda t: t.rank.copy(t.output[0:1], Chunk(0, BufferType.input, 4, 1), tb=0),
        RuntimeError,
        "it has 4 chunks",
    ),
    "unpack from elsewhere": (
        lambda t: t.rank.unpack_packets(t.output[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "cannot unpack_packets with packets in buffer i: packets live in scratch",
    ),
    "pack to elsewhere": (
        lambda t: t.rank.copy_packets(t.output[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "cannot copy_packets with packets",
    ),
    "reduce nothing": (lambda t: t.rank.reduce(t.input[0:1], [], tb=0), RuntimeError, "cannot reduce: Other chunk empty."),
    "reduce of another rank": (
        lambda t: t.rank.reduce(t.input[0:1], [t.far_input[0:1]], tb=0),
        RuntimeError,
        "rank 1",
    ),
    "reduce of other sizes": (
        lambda t: t.rank.reduce(t.input[0:1], [t.input[0:2]], tb=0),
        RuntimeError,
        "equal sizes",
    ),
    "reduce to another rank": (
        lambda t: t.rank.reduce(t.input[0:1], [t.input[1:2]], tb=0, dst_chunk=t.far_input[0:1]),
        RuntimeError,
        "destination chunk of rank 1",
    ),
    "reduce packets of elsewhere": (
        lambda t: t.rank.reduce(t.input[0:1], [t.input[1:2]], tb=0, packet=True),
        RuntimeError,
        "cannot reduce with packets",
    ),
    "reduce without a block": (lambda t: t.rank.reduce(t.input[0:1], [t.input[1:2]]), RuntimeError, "tb or tb_group"),
    "reduce by no operator": (
        lambda t: t.rank.reduce(t.input[0:1], [t.input[1:2]], tb=0, reduce_op="avg"),
        TypeError,
        "ReduceOperationType.sum",
    ),
    "barrier of nobody": (lambda t: t.rank.barrier([]), RuntimeError, "^Barrier requires at least thread block.$"),
    "barrier of a block twice": (lambda t: t.rank.barrier([0, 0]), ValueError, "a block twice"),
    "put from the peer": (
        lambda t: t.memory.put(t.far_output[0:1], t.far_input[0:1], tb=0),
        RuntimeError,
        "saw a source chunk of rank 1",
    ),
    "put to oneself": (
        lambda t: t.memory.put(t.output[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "saw a destination chunk of rank 0",
    ),
    "put of other sizes": (lambda t: t.memory.put(t.far_output[0:2], t.input[0:1], tb=0), RuntimeError, "equal sizes"),
    "put without a block": (lambda t: t.memory.put(t.far_output[0:1], t.input[0:1]), RuntimeError, "tb or tb_group"),
    "get from oneself": (lambda t: t.memory.get(t.output[0:1], t.input[0:1], tb=0), RuntimeError, "rank 0"),
    "get to the peer": (lambda t: t.memory.get(t.far_output[0:1], t.far_input[0:1], tb=0), RuntimeError, "rank 1"),
    "get of other sizes": (lambda t: t.memory.get(t.output[0:2], t.far_input[0:1], tb=0), RuntimeError, "equal sizes"),
    "put_packets to elsewhere": (
        lambda t: t.memory.put_packets(t.far_output[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "cannot put_packets with packets",
    ),
    "read_put_packets from elsewhere": (
        lambda t: t.memory.read_put_packets(t.far_scratch[0:1], t.input[0:1], tb=0),
        RuntimeError,
        "cannot read_put_packets with packets",
    ),
    "read_put_packets to elsewhere": (
        lambda t: t.memory.read_put_packets(t.far_output[0:1], t.scratch[0:1], tb=0),
        RuntimeError,
        "packets live in scratch",
    ),
    "read_put_packets without a block": (
        lambda t: t.memory.read_put_packets(t.far_scratch[0:1], t.scratch[0:1]),
        ValueError,
        "tb or tb_group",
    ),
    "port read_put_packets without a block": (
        lambda t: t.port.read_put_packets(t.far_scratch[0:1], t.scratch[0:1]),
        ValueError,
        "tb or tb_group",
    ),
    "read reduce of nothing": (lambda t: t.memory.reduce(t.input[0:1], [], tb=0), RuntimeError, "cannot reduce: Other chunk empty."),
    "read reduce of oneself": (
        lambda t: t.memory.reduce(t.input[0:1], [t.input[1:2]], tb=0),
        RuntimeError,
        "saw a source chunk of rank 0, allowed rank 1",
    ),
    "read reduce of other sizes": (
        lambda t: t.memory.reduce(t.input[0:1], [t.far_input[0:2]], tb=0),
        RuntimeError,
        "equal sizes",
    ),
    "port put_packets to elsewhere": (
        lambda t: t.port.put_packets(t.far_output[0:1], t.scratch[0:1], 0),
        RuntimeError,
        "packets live in scratch",
    ),
    "port put without a block": (lambda t: t.port.put(t.far_output[0:1], t.input[0:1]), TypeError, "tb"),
    "port put by a group": (
        lambda t: t.port.put(t.far_output[0:1], t.input[0:1], tb_group=ThreadBlockGroup([0])),
        TypeError,
        "tb_group",
    ),
    "signal without a block": (lambda t: t.memory.signal(), TypeError, "tb"),
    "relaxed signal over a port": (lambda t: t.port.signal(0, relaxed=True), TypeError, "relaxed"),
    "signal with no sync": (lambda t: t.memory.signal(0, data_sync=3), TypeError, "SyncType.both"),
    "signal on a block before": (lambda t: t.memory.signal(-1), RuntimeError, "block -1"),
    "acquire with no sync": (lambda t: t.semaphore.acquire(0, None), TypeError, "SyncType.both"),
    "switch at a rank beyond": (lambda t: t.switch.at_rank(2), RuntimeError, "rank 2"),
    "switch at a stranger": (
        lambda t: SwitchChannel([1], BufferType.input).at_rank(0),
        RuntimeError,
        r"switch channel on rank 0: it belongs to \[1\]",
    ),
    "switch reduce at a stranger": (
        lambda t: SwitchChannel([1], BufferType.input).reduce(0, 0, 1, t.output[0:1], 0),
        RuntimeError,
        "switch channel on rank 0",
    ),
    "switch reduce to another rank": (
        lambda t: t.switch.at_rank(0).reduce(0, 1, t.far_output[0:1], 0),
        RuntimeError,
        "destination chunk of rank 1",
    ),
    "switch reduce of another size": (
        lambda t: t.switch.at_rank(0).reduce(0, 2, t.output[0:1], 0),
        RuntimeError,
        "cannot reduce: saw runs of 2 and 1 chunks, allowed equal sizes",
    ),
    "switch reduce beyond": (
        lambda t: t.switch.at_rank(0).reduce(3, 2, t.output[0:2], 0),
        RuntimeError,
        "it has 4 chunks",
    ),
    "switch reduce before": (
        lambda t: t.switch.at_rank(0).reduce(-1, 2, t.output[0:2], 0),
        RuntimeError,
        "2 chunks from -1 on",
    ),
    "switch broadcast from another rank": (
        lambda t: t.switch.at_rank(0).broadcast(t.far_output[0:1], 0, 1, 0),
        RuntimeError,
        "cannot broadcast on rank 0: saw a source chunk of rank 1",
    ),
    "switch broadcast of another size": (
        lambda t: t.switch.at_rank(0).broadcast(t.output[0:1], 0, 2, 0),
        RuntimeError,
        "equal sizes",
    ),
    "switch broadcast beyond": (
        lambda t: t.switch.at_rank(0).broadcast(t.output[0:1], 4, 1, 0),
        RuntimeError,
        "it has 4 chunks",
    ),
    "switch packets from elsewhere": (
        lambda t: t.packet_switch.at_rank(0).broadcast_packets(t.input[0:1], 0, 1, 0),
        RuntimeError,
        "cannot broadcast_packets with packets",
    ),
    "switch packets to elsewhere": (
        lambda t: t.switch.at_rank(0).broadcast_packets(t.scratch[0:1], 0, 1, 0),
        RuntimeError,
        "packets live in scratch",
    ),
    "switch packets to scratch not handed out": (
        lambda t: t.packet_switch.at_rank(0).broadcast_packets(t.scratch[0:1], 4, 1, 0),
        RuntimeError,
        "it has 4 chunks",
    ),
}


PLAN_NAMES = set("ppkt rppkt cpkt upkt re rre res rres repkt glre gstore gstorepkt pws pwsf vput vget vcopy".split())


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused_at_the_call(bare, call, error, text):
    things = Things()
    with pytest.raises(error, match=text) as caught:
        call(things)
    said = str(caught.value).split()
    assert said[0] != "cannot" or said[1].rstrip(":") not in PLAN_NAMES, "the plan's name, not the author's"
    assert all(op["name"] == "nothing" for gpu in plan(bare)["gpus"] for tb in gpu["threadblocks"] for op in tb["ops"])
