"""All-pairs packet allgather in place: a block for every send and one for every receive, nearest successor first."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllGather
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank


def allgather(name, ranks):
    with CollectiveProgram(
        name, AllGather(ranks, 1, True), ranks, protocol="LL", use_double_scratch_buffer=True
    ):
        slots = [Buffer(rank, ranks) for rank in range(ranks)]
        for me in range(ranks):
            output = Rank(me).get_output_buffer()
            peers = [(me + step) % ranks for step in range(1, ranks)]
            for block, peer in enumerate(peers):
                channel = MemoryChannel(peer, me)
                channel.put_packets(slots[peer][me : me + 1], output[me : me + 1], tb=block)
            for block, peer in enumerate(peers, start=len(peers)):
                Rank(me).unpack_packets(output[peer : peer + 1], slots[me][peer : peer + 1], tb=block)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_packets")
parser.add_argument("--num_gpus", type=int, default=4)
args = parser.parse_args()
allgather(args.name, args.num_gpus)
