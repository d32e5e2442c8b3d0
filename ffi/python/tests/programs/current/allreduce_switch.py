"""Allreduce through a switch group on the users' own buffers: load the sum of a slice, store it to everyone."""

import argparse

from antiphon.language.channel import MemoryChannel, SwitchChannel
from antiphon.language.collectives import AllReduce
from antiphon.language.general import JSON
from antiphon.language.internal.types import BufferType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank


def meet(channels):
    for channel in channels:
        channel.signal(tb=0, relaxed=True)
    for channel in channels:
        channel.wait(tb=0, relaxed=True)


def allreduce(name, ranks, instances):
    with CollectiveProgram(name, AllReduce(ranks, 1, True), ranks, instances=instances):
        lanes = [[MemoryChannel(peer, me) for peer in range(ranks) if peer != me] for me in range(ranks)]
        group = SwitchChannel(rank_list=list(range(ranks)), buffer_type=BufferType.input)
        for me, channels in enumerate(lanes):
            slice_ = Rank(me).get_input_buffer()[me : me + 1]
            meet(channels)
            group.at_rank(me).reduce(buffer_offset=me, size=1, dst_chunk=slice_, tb=0)
            group.at_rank(me).broadcast(src_chunk=slice_, buffer_offset=me, size=1, tb=0)
            meet(channels)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allreduce_switch")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--instances", type=int, default=8)
args = parser.parse_args()
allreduce(args.name, args.num_gpus, args.instances)
