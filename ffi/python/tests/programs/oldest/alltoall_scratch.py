"""Alltoall in place: a block for each peer sends to its scratch, and after a barrier of the blocks copies home."""

from mscclpp.language import *
from mscclpp.language.collectives import AllToAll
from mscclpp.language.types import ChannelType

SIZE = 4  # a power of two: then `me ^ you` gives both ranks of a pair the same block


def alltoall(size):
    with MSCCLPPProgram("alltoall_scratch", AllToAll(size, 1, True), size, 1, num_threads_per_block=512):
        for me in range(size):
            for you in (r for r in range(size) if r != me):
                chunk(me, Buffer.input, you).signal(
                    you, Buffer.input, me, (me ^ you) - 1, ChannelType.memory
                )
        for me in range(size):
            for you in (r for r in range(size) if r != me):
                tb = (me ^ you) - 1
                c = chunk(me, Buffer.input, you)
                c.wait(you, Buffer.input, me, tb, ChannelType.memory)
                c.put(you, Buffer.scratch, me, tb, ChannelType.memory)
                c.signal(you, Buffer.scratch, me, tb, ChannelType.memory)
        for me in range(size):
            for you in (r for r in range(size) if r != me):
                chunk(me, Buffer.scratch, you).wait(
                    you, Buffer.input, me, (me ^ you) - 1, ChannelType.memory
                )
            rank(me).barrier(tb_list=list(range(size - 1)))
            for you in (r for r in range(size) if r != me):
                chunk(me, Buffer.scratch, you).copy(me, Buffer.input, you, sendtb=(me ^ you) - 1)
        Json()
        assert Check()


alltoall(SIZE)
