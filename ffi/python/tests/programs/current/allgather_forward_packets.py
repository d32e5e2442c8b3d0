"""Packet allgather that packs the input once and sends the same packets to everyone."""

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
        slots = [Buffer(rank, 2 * ranks) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            packed = slots[me][ranks + me : ranks + me + 1]
            rank.copy_packets(packed, rank.get_input_buffer()[0:1], tb=0)
            peers = [(me + step) % ranks for step in range(1, ranks)]
            for peer in peers:
                MemoryChannel(peer, me).read_put_packets(slots[peer][me : me + 1], packed, tb=0)
            for peer in peers:
                rank.unpack_packets(rank.get_output_buffer()[peer : peer + 1], slots[me][peer : peer + 1], tb=0)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_forward_packets")
parser.add_argument("--num_gpus", type=int, default=4)
args = parser.parse_args()
allgather(args.name, args.num_gpus)
