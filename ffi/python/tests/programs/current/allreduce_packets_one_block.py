"""Two-shot packet allreduce with one thread block a rank: scatter slices, sum one's own, hand the sum round."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllReduce
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank


def allreduce(name, ranks):
    with CollectiveProgram(name, AllReduce(ranks, 1, True), ranks, protocol="LL"):
        # Slot r holds what rank r sends me to add, slot ranks + r the sum that rank r made.
        slots = [Buffer(rank, 2 * ranks) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            data = rank.get_input_buffer()
            mine = data[me : me + 1]
            channels = {peer: MemoryChannel(peer, me) for peer in range(ranks) if peer != me}
            for peer, channel in channels.items():
                channel.put_packets(slots[peer][me : me + 1], data[peer : peer + 1], tb=0)
            for peer in channels:
                rank.reduce(mine, [slots[me][peer : peer + 1]], tb=0, packet=True)
            for peer, channel in channels.items():
                channel.put_packets(slots[peer][ranks + me : ranks + me + 1], mine, tb=0)
            for peer in channels:
                rank.unpack_packets(data[peer : peer + 1], slots[me][ranks + peer : ranks + peer + 1], tb=0)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allreduce_packets_one_block")
parser.add_argument("--num_gpus", type=int, default=4)
args = parser.parse_args()
allreduce(args.name, args.num_gpus)
