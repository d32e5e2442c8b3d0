"""Reduce-scatter in place over port channels into scratch, a block for each peer's slot, summed by block 0."""

from mscclpp.language import *
from mscclpp.language.collectives import ReduceScatter
from mscclpp.language.types import ChannelType

SIZE = 3
PORT = ChannelType.port

with MSCCLPPProgram("reducescatter_ports", ReduceScatter(SIZE, 1, True), SIZE, 1):
    # Scratch may be written once its owner is in this launch.
    for me in range(SIZE):
        for you in (r for r in range(SIZE) if r != me):
            chunk(me, Buffer.input, me).signal(you, Buffer.input, me, sendtb=0, chan_type=PORT)
    for me in range(SIZE):
        for you in (r for r in range(SIZE) if r != me):
            chunk(me, Buffer.input, you).wait(you, Buffer.input, you, recvtb=0, chan_type=PORT)
            c = chunk(me, Buffer.input, you)
            c.put(you, Buffer.scratch, me, sendtb=0, chan_type=PORT)
            c.signal(you, Buffer.scratch, me, sendtb=0, chan_type=PORT)
            c.flush(you, Buffer.scratch, me, sendtb=0)
    for me in range(SIZE):
        for you in (r for r in range(SIZE) if r != me):
            chunk(me, Buffer.scratch, you).wait(you, Buffer.input, me, recvtb=0, chan_type=PORT)
        total = chunk(me, Buffer.input, me)
        for you in (r for r in range(SIZE) if r != me):
            total = total.reduce(other=chunk(me, Buffer.scratch, you), recvtb=0)
    Json()
    assert Check()
