"""All-pairs allgather in place: put, signal, wait, over memory channels."""

from mscclpp.language import *
from mscclpp.language.buffer import Buffer
from mscclpp.language.collectives import AllGather
from mscclpp.language.types import ChannelType, ReplicationPolicy

SIZE = 4

with MSCCLPPProgram(
    "allgather_signals",
    AllGather(SIZE, 1, True),
    SIZE,
    1,
    protocol="Simple",
    replication_policy=ReplicationPolicy.interleaved,
):
    for r in range(SIZE):
        for p in range(SIZE):
            if p != r:
                mine = chunk(r, Buffer.output, r)
                mine.put(p, Buffer.output, r, sendtb=0, chan_type=ChannelType.memory)
                mine.signal(p, Buffer.output, r, sendtb=0, chan_type=ChannelType.memory)
    for r in range(SIZE):
        for p in range(SIZE):
            if p != r:
                chunk(r, Buffer.output, p).wait(p, Buffer.output, p, recvtb=0, chan_type=ChannelType.memory)
    Json()
    assert Check()
