"""All-pairs allreduce in place: every block of a rank sums one chunk of the rank's slice out of all inputs and stores it everywhere."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllReduce
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank


def allreduce(name, ranks, blocks):
    with CollectiveProgram(name, AllReduce(ranks, blocks, True), ranks):
        inputs = [Rank(rank).get_input_buffer() for rank in range(ranks)]
        for me in range(ranks):
            peers = [rank for rank in range(ranks) if rank != me]
            for block in range(blocks):
                at = me * blocks + block
                channels = {peer: MemoryChannel(peer, me) for peer in peers}
                for channel in channels.values():
                    channel.signal(tb=block, relaxed=True)
                for channel in channels.values():
                    channel.wait(tb=block, relaxed=True)
                mine = inputs[me][at : at + 1]
                for peer, channel in channels.items():
                    channel.reduce(mine, [inputs[peer][at : at + 1]], tb=block)
                for peer, channel in channels.items():
                    channel.put(inputs[peer][at : at + 1], mine, tb=block)
                for channel in channels.values():
                    channel.signal(tb=block)
                for channel in channels.values():
                    channel.wait(tb=block)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allreduce")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--tbs", type=int, default=8)
args = parser.parse_args()
allreduce(args.name, args.num_gpus, args.tbs)
