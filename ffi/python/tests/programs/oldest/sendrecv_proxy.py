"""Two ranks exchange over proxy channels: put, signal and flush, which become one request."""

from msccl.language.mscclpp import *
from msccl.topologies import fully_connected
from msccl.language.collectives import SendRecv
from msccl.language.types import ChannelType

with MSCCLPPProgram("sendrecv_proxy", fully_connected(2), SendRecv(2, 1, False), 1):
    for me in range(2):
        you = 1 - me
        c = chunk(me, Buffer.input, 0)
        c.put(you, Buffer.output, 0, sendtb=0, chan_type=ChannelType.proxy)
        c.signal(you, Buffer.output, 0, sendtb=0, chan_type=ChannelType.proxy)
        c.flush(you, Buffer.output, 0, sendtb=0, chan_type=ChannelType.proxy)
    for me in range(2):
        chunk(me, Buffer.output, 0).wait(1 - me, Buffer.input, 0, recvtb=0, chan_type=ChannelType.proxy)
    Json()
    assert Check()
