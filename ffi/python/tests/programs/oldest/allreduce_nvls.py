"""Allreduce through the switch: each rank loads the sum of its slice of all inputs and stores it to all of them."""

from mscclpp.language import *
from mscclpp.language.collectives import AllReduce
from mscclpp.language.types import ChannelType

SIZE = 2


def tell_all(size):
    """Everybody signals everybody, and waits for it."""
    for me in range(size):
        for you in (r for r in range(size) if r != me):
            chunk(me, Buffer.input, me).signal(you, Buffer.input, me, sendtb=0, chan_type=ChannelType.memory)
    for me in range(size):
        for you in (r for r in range(size) if r != me):
            chunk(me, Buffer.input, you).wait(you, Buffer.input, you, recvtb=0, chan_type=ChannelType.memory)


with MSCCLPPProgram("allreduce_nvls", AllReduce(SIZE, SIZE, True, num_ranks_per_node=SIZE), SIZE, 1):
    tell_all(SIZE)
    for me in range(SIZE):
        others = [r for r in range(SIZE) if r != me]
        c = chunk(me, Buffer.input, me)
        c = c.group_load_reduce(
            [chunk(r, Buffer.input, me) for r in others], recvtb=0, chan_type=ChannelType.nvls
        )
        c.group_store(others, sendtb=0, chan_type=ChannelType.nvls)
    tell_all(SIZE)
    Json()
    assert Check()
