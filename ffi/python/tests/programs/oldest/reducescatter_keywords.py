"""Packet reduce-scatter in place in the keywords of the first guides: chunk=, other_chunkref=, packet_put, intermediate."""

from mscclpp.language import *
from mscclpp.language.collectives import ReduceScatter

SIZE = 3

with MSCCLPPProgram("reducescatter_keywords", ReduceScatter(SIZE, 1, True), SIZE, 1, protocol="LL"):
    for me in range(SIZE):
        for you in range(SIZE):
            if you != me:
                chunk(me, Buffer.input, you, 1).packet_put(
                    dst=you, chunk=Buffer.intermediate, index=me, sendtb=0, chan_type=ChannelType.sm
                )
    for me in range(SIZE):
        total = chunk(me, Buffer.input, me, size=1)
        for you in range(SIZE):
            if you != me:
                total = total.reduce_packet(other_chunkref=chunk(me, Buffer.intermediate, you, 1), recvtb=0)
    Json()
    assert Check()
