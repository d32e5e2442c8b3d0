"""Packet allreduce for a fully connected topology, with a named scratch buffer and the first names of the channels."""

from msccl.language import *
from msccl.topologies import *
from msccl.language.collectives import AllReduce

SIZE = 3


def allreduce(size, instances):
    topology = fully_connected(size)
    collective = AllReduce(size, size, True)
    with MSCCLPPProgram(
        "allreduce_packets", topology, collective, instances, protocol="LL", use_double_scratch_buffer=True
    ):
        for me in range(size):
            for you in range(size):
                if you != me:
                    chunk(me, Buffer.input, you).put_packet(
                        you, "inbox", index=me, sendtb=0, chan_type=ChannelType.sm
                    )
        for me in range(size):
            mine = chunk(me, Buffer.input, me)
            for you in range(size):
                if you != me:
                    mine = mine.reduce_packet(chunk(me, "inbox", you), recvtb=0)
            for you in range(size):
                if you != me:
                    mine.put_packet(you, "sums", index=me, sendtb=0)
        for me in range(size):
            for you in range(size):
                if you != me:
                    chunk(me, "sums", you).copy_packet(me, Buffer.input, you, sendtb=0)
        Json()
        assert Check()


allreduce(SIZE, 1)
