"""Two-shot packet allreduce: n blocks a rank, n*n chunks; block k sums the k-th chunk of the rank's slice."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllReduce
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank


def place(peer, rank):
    """Where `rank` stands among the peers of `peer`."""
    return rank if rank < peer else rank - 1


def allreduce(name, ranks):
    program = CollectiveProgram(
        name,
        AllReduce(ranks, ranks, True),
        ranks,
        protocol="LL",
        auto_sync=False,
        use_double_scratch_buffer=True,
    )
    with program:
        half = ranks * (ranks - 1)
        slots = [Buffer(rank, 2 * half) for rank in range(ranks)]
        data = [Rank(rank).get_input_buffer() for rank in range(ranks)]
        channels = [
            {peer: MemoryChannel(peer, me) for peer in range(ranks) if peer != me} for me in range(ranks)
        ]
        for me in range(ranks):
            for peer, channel in channels[me].items():
                slot = place(peer, me) * ranks
                channel.put_packets(
                    slots[peer][slot : slot + ranks],
                    data[me][peer * ranks : (peer + 1) * ranks],
                    tb=place(me, peer),
                )
        for me in range(ranks):
            for k in range(ranks):
                mine = data[me][me * ranks + k : me * ranks + k + 1]
                received = [slots[me][other * ranks + k : other * ranks + k + 1] for other in range(ranks - 1)]
                Rank(me).reduce(mine, received, tb=k, packet=True)
                for peer, channel in channels[me].items():
                    slot = half + place(peer, me) * ranks + k
                    channel.put_packets(slots[peer][slot : slot + 1], mine, tb=k)
        for me in range(ranks):
            for peer in channels[me]:
                slot = half + place(me, peer) * ranks
                Rank(me).unpack_packets(
                    data[me][peer * ranks : (peer + 1) * ranks], slots[me][slot : slot + ranks], tb=peer
                )
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allreduce_packets")
parser.add_argument("--num_gpus", type=int, default=8)
args = parser.parse_args()
allreduce(args.name, args.num_gpus)
