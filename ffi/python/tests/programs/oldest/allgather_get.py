"""Allgather in place by reading into scratch: two chunks a rank, taken apart and put together, in two instances."""

from mscclpp.language import *
from mscclpp.language.collectives import AllGather
from mscclpp.language.types import ChannelType, ReplicationPolicy

SIZE, FACTOR = 2, 2

with MSCCLPPProgram(
    "allgather_get",
    AllGather(SIZE, FACTOR, True),
    SIZE,
    2,
    instr_fusion=False,
    replication_policy=ReplicationPolicy.duplicated,
    min_message_size=0,
    max_message_size=2**30,
):
    for me in range(SIZE):
        first, second = chunk(me, Buffer.output, me * FACTOR, FACTOR).split(2)
        assert first.get_origin_rank() == me
        both = first.group(second)
        both.signal(1 - me, Buffer.scratch, 0, sendtb=0)
    for me in range(SIZE):
        you = 1 - me
        arrived = chunk(me, Buffer.scratch, 0, FACTOR)
        arrived.wait(you, Buffer.output, you * FACTOR, recvtb=0)
        arrived.get(you, Buffer.output, you * FACTOR, recvtb=0, chan_type=ChannelType.memory)
        chunk(me, Buffer.scratch, 0, FACTOR).copy(me, Buffer.output, you * FACTOR, sendtb=0)
        # The peer's own chunks are read: it may change them.
        chunk(me, Buffer.scratch, 0, FACTOR).signal(you, Buffer.output, you * FACTOR, sendtb=0)
    for me in range(SIZE):
        chunk(me, Buffer.output, me * FACTOR, FACTOR).wait(1 - me, Buffer.scratch, 0, recvtb=0)
    Json()
    assert Check()
