"""Packet allgather through a switch group over scratch: pack, store the packets to all, unpack everyone's."""

import argparse

from antiphon.language.channel import SwitchChannel
from antiphon.language.collectives import AllGather
from antiphon.language.general import JSON
from antiphon.language.internal.types import BufferType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank


def allgather(name, ranks):
    with CollectiveProgram(
        name,
        AllGather(ranks, 1, True),
        ranks,
        protocol="LL",
        auto_sync=False,
        num_threads_per_block=256,
        use_double_scratch_buffer=True,
        min_message_size=1 << 10,
        max_message_size=1 << 20,
    ):
        slots = [Buffer(rank, ranks) for rank in range(ranks)]
        group = SwitchChannel(rank_list=list(range(ranks)), buffer_type=BufferType.scratch)
        for me in range(ranks):
            rank = Rank(me)
            output = rank.get_output_buffer()
            packed = slots[me][me : me + 1]
            rank.copy_packets(packed, output[me : me + 1], tb=0)
            group.at_rank(me).broadcast_packets(packed, buffer_offset=me, size=1, tb=0)
            for source in range(ranks):
                rank.unpack_packets(output[source : source + 1], slots[me][source : source + 1], tb=source)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_switch_packets")
parser.add_argument("--num_gpus", type=int, default=8)
args = parser.parse_args()
allgather(args.name, args.num_gpus)
