"""Allreduce in place by writing, in a named temporary buffer; the sum is sent to all as one reduce-and-send.

Block b of each rank works for slice b, so every signal and its wait are in blocks of the same number.
"""

from msccl.language import *
from msccl.topologies import *
from msccl.language.collectives import AllReduce
from msccl.language.types import ReplicationPolicy

SIZE = 3


def others(rank):
    return [r for r in range(SIZE) if r != rank]


with MSCCLPPProgram(
    "allreduce_merged",
    fully_connected(SIZE),
    AllReduce(SIZE, SIZE, True),
    1,
    instr_fusion=True,
    replication_policy=ReplicationPolicy.interleaved,
):
    # The owner of a slice says that its scratch is free.
    for owner in range(SIZE):
        for sender in others(owner):
            chunk(owner, Buffer.input, owner).signal(sender, Buffer.input, owner, sendtb=owner)
    for owner in range(SIZE):
        for sender in others(owner):
            c = chunk(sender, Buffer.input, owner)
            c.wait(owner, Buffer.input, owner, recvtb=owner)
            c.put(owner, "tmp", sender, sendtb=owner)
            c.signal(owner, "tmp", sender, sendtb=owner)
    for owner in range(SIZE):
        total = chunk(owner, Buffer.input, owner)
        for sender in others(owner):
            part = chunk(owner, "tmp", sender)
            part.wait(sender, Buffer.input, owner, recvtb=owner)
        for sender in others(owner):
            total = total.reduce(chunk(owner, "tmp", sender), recvtb=owner, channel_type=ChannelType.sm)
        for reader in others(owner):
            total.put(reader, Buffer.input, owner, sendtb=owner)
        for reader in others(owner):
            total.signal(reader, Buffer.input, owner, sendtb=owner)
    for reader in range(SIZE):
        for owner in others(reader):
            chunk(reader, Buffer.input, owner).wait(owner, Buffer.input, owner, recvtb=owner)
    Json()
    assert Check()
