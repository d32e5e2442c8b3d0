"""Alltoall that walks the ring: one block sends to ever later ranks while another receives from ever earlier ones."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllToAll
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank, Semaphore

SENDER, RECEIVER = 0, 1


def slot_of(rank, owner):
    """The slot of `owner`'s scratch that belongs to `rank`."""
    return rank if rank < owner else rank - 1


def alltoall(name, ranks, instances, inplace):
    with CollectiveProgram(name, AllToAll(ranks, 1, inplace), ranks, instances=instances):
        scratch = [Buffer(rank, ranks - 1) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            source = rank.get_input_buffer()
            target = source if inplace else rank.get_output_buffer()
            streams, ready, sent = {}, {}, {}
            for peer in (p for p in range(ranks) if p != me):
                streams[peer] = MemoryChannel(peer, me)
                ready[peer] = MemoryChannel(peer, me)
                if inplace:
                    sent[peer] = Semaphore(me, 0)
            for channel in ready.values():
                channel.signal(tb=SENDER, relaxed=True)
            for channel in ready.values():
                channel.wait(tb=SENDER, relaxed=True)
            for step in range(1, ranks):
                peer = (me + step) % ranks
                slot = slot_of(me, peer)
                streams[peer].put(scratch[peer][slot : slot + 1], source[peer : peer + 1], tb=SENDER)
                if inplace:
                    streams[peer].signal(tb=SENDER)
                    sent[peer].release(tb=SENDER)
                else:
                    streams[peer].signal(tb=SENDER, data_sync=SyncType.before)
            for step in range(1, ranks):
                peer = (me - step) % ranks
                slot = slot_of(peer, me)
                if inplace:
                    sent[peer].acquire(tb=RECEIVER)
                    streams[peer].wait(tb=RECEIVER)
                else:
                    streams[peer].wait(tb=RECEIVER, data_sync=SyncType.after)
                rank.copy(target[peer : peer + 1], scratch[me][slot : slot + 1], tb=RECEIVER)
            if not inplace:
                rank.copy(target[me : me + 1], source[me : me + 1], tb=SENDER)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="alltoall_ring")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--instances", type=int, default=16)
parser.add_argument("--out_of_place", action="store_true")
args = parser.parse_args()
alltoall(args.name, args.num_gpus, args.instances, not args.out_of_place)
