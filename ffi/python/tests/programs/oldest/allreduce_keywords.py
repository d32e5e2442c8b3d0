"""Allreduce by writing to scratch, in the keywords of the first guides; a chunk reference stands where a buffer may.

`chunk=` with a reference sends to where that reference lies, and `reduce` takes `other_chunkref=`, `recvtb=` and `channel_type=`.
"""

from mscclpp.language import *
from mscclpp.language.collectives import AllReduce

SIZE = 2

with MSCCLPPProgram("allreduce_keywords", AllReduce(SIZE, SIZE, True), SIZE, 1):
    # The peer has begun: its scratch may be written.
    for me in range(SIZE):
        you = 1 - me
        chunk(me, Buffer.input, me).signal(dst=you, buffer=Buffer.input, index=me, sendtb=0)
    for me in range(SIZE):
        you = 1 - me
        chunk(me, Buffer.input, you).wait(src=you, buffer=Buffer.input, index=you, recvtb=0)
    for me in range(SIZE):
        you = 1 - me
        c = chunk(me, Buffer.input, you, 1)
        c.put(dst=you, chunk=Buffer.scratch, index=0, sendtb=0, chan_type=ChannelType.sm)
        c.signal(dst=you, chunk=Buffer.scratch, index=0, sendtb=0, chan_type=ChannelType.sm)
    for me in range(SIZE):
        you = 1 - me
        arrived = chunk(me, Buffer.scratch, 0)
        arrived.wait(src=you, chunk=Buffer.input, index=me, recvtb=0, chan_type=ChannelType.sm)
        total = chunk(me, Buffer.input, me)
        total.reduce(other_chunkref=arrived, recvtb=0, channel_type=ChannelType.sm)
        there = chunk(you, Buffer.input, me)
        total.put(dst=you, chunk=there, sendtb=0)
        total.signal(dst=you, chunk=there, sendtb=0)
    for me in range(SIZE):
        you = 1 - me
        chunk(me, Buffer.input, you).wait(src=you, chunk=chunk(you, Buffer.input, you), recvtb=0)
    Json()
    assert Check()
