"""Alltoall in place through the receiver's scratch, a block for each peer."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllToAll
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank


def slot_of(rank, owner):
    """The slot of `owner`'s scratch that belongs to `rank`."""
    return rank if rank < owner else rank - 1


def alltoall(name, ranks, instances):
    with CollectiveProgram(name, AllToAll(ranks, 1, True), ranks, instances=instances):
        scratch = [Buffer(rank, ranks - 1) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            data = rank.get_input_buffer()
            for block, peer in enumerate(p for p in range(ranks) if p != me):
                channel = MemoryChannel(peer, me)
                theirs = slot_of(me, peer)
                mine = slot_of(peer, me)
                channel.signal(tb=block, relaxed=True)
                channel.wait(tb=block, relaxed=True)
                channel.put(scratch[peer][theirs : theirs + 1], data[peer : peer + 1], tb=block)
                channel.signal(tb=block, data_sync=SyncType.before)
                channel.wait(tb=block, data_sync=SyncType.after)
                rank.copy(data[peer : peer + 1], scratch[me][mine : mine + 1], tb=block)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="alltoall")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--instances", type=int, default=2)
args = parser.parse_args()
alltoall(args.name, args.num_gpus, args.instances)
