"""Allreduce in place that reads the peers' slices, with two instances interleaved; block b works on slice b."""

from mscclpp.language import *
from mscclpp.language.collectives import AllReduce
from mscclpp.language.types import ChannelType, ReplicationPolicy

SIZE = 2
MEMORY = ChannelType.memory

with MSCCLPPProgram(
    "allreduce_read_reduce",
    AllReduce(SIZE, SIZE, True),
    SIZE,
    2,
    instr_fusion=True,
    replication_policy=ReplicationPolicy.interleaved,
):
    for owner in range(SIZE):
        for reader in (r for r in range(SIZE) if r != owner):
            chunk(owner, Buffer.input, reader).signal(
                reader, Buffer.input, reader, sendtb=reader, chan_type=MEMORY
            )
    for me in range(SIZE):
        c = chunk(me, Buffer.input, me)
        peers = [r for r in range(SIZE) if r != me]
        for peer in peers:
            c.wait(peer, Buffer.input, me, recvtb=me, chan_type=MEMORY)
        for peer in peers:
            c = c.reduce(chunk(peer, Buffer.input, me), recvtb=me, channel_type=MEMORY)
        for peer in peers:
            c.put(peer, Buffer.input, me, sendtb=me, chan_type=MEMORY)
        for peer in peers:
            c.signal(peer, Buffer.input, me, sendtb=me, chan_type=MEMORY)
    for me in range(SIZE):
        for peer in (r for r in range(SIZE) if r != me):
            chunk(me, Buffer.input, peer).wait(peer, Buffer.input, peer, recvtb=peer, chan_type=MEMORY)
    Json()
    assert Check()
