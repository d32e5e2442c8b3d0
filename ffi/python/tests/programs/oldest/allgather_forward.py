"""Packet allgather over ports: the input is packed once through a temporary buffer, then the packets are forwarded.

Rank 0 sends to rank 1 over a port, and so on round the ring; what arrives goes on as packets, unread.
"""

from mscclpp.language import *
from mscclpp.language.collectives import AllGather
from mscclpp.language.types import ChannelType, DataFormat

SIZE = 3

with MSCCLPPProgram("allgather_forward", AllGather(SIZE, 1, True), SIZE, 1, protocol="LL"):
    for me in range(SIZE):
        following = (me + 1) % SIZE
        chunk(me, Buffer.output, me).put_packet(
            following,
            Buffer.scratch,
            me,
            sendtb=0,
            src_format=DataFormat.raw,
            chan_type=ChannelType.port,
            temp_buffer=Buffer.scratch,
            temp_buffer_index=me,
        )
    for step in range(1, SIZE - 1):
        for me in range(SIZE):
            following, origin = (me + 1) % SIZE, (me - step) % SIZE
            chunk(me, Buffer.scratch, origin).put_packet(
                following,
                Buffer.scratch,
                origin,
                sendtb=0,
                src_format=DataFormat.packet,
                chan_type=ChannelType.port,
            )
    for me in range(SIZE):
        for origin in range(SIZE):
            if origin != me:
                chunk(me, Buffer.scratch, origin).copy_packet(me, Buffer.output, origin, sendtb=0)
    Json()
    assert Check()
