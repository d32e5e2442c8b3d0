"""Alltoall in place, half a mebibyte at a time: a sending and a receiving block for each peer, a semaphore between them."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllToAll
from antiphon.language.general import JSON
from antiphon.language.loop import LoopIterationContext
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank, Semaphore


def slot_of(rank, owner):
    """The slot of `owner`'s scratch that belongs to `rank`."""
    return rank if rank < owner else rank - 1


def alltoall(name, ranks, instances):
    with CollectiveProgram(name, AllToAll(ranks, 1, True), ranks, instances=instances):
        scratch = [Buffer(rank, ranks - 1) for rank in range(ranks)]
        for me in range(ranks):
            rank = Rank(me)
            data = rank.get_input_buffer()
            sent = [Semaphore(me, 0) for _ in range(ranks)]
            for block, peer in enumerate(p for p in range(ranks) if p != me):
                stream = MemoryChannel(peer, me)
                ready = MemoryChannel(peer, me)
                theirs = slot_of(me, peer)
                mine = slot_of(peer, me)
                receiver = ranks - 1 + block
                ready.signal(tb=block, relaxed=True)
                ready.wait(tb=block, relaxed=True)
                with LoopIterationContext(unit=2**19, num_chunks=1):
                    stream.put(scratch[peer][theirs : theirs + 1], data[peer : peer + 1], tb=block)
                    stream.signal(tb=block)
                    sent[block].release(tb=block)
                    # The data goes back to where it was sent from, so it must have been sent.
                    sent[block].acquire(tb=receiver)
                    stream.wait(tb=receiver)
                    rank.copy(data[peer : peer + 1], scratch[me][mine : mine + 1], tb=receiver)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="alltoall_pipeline")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--instances", type=int, default=2)
args = parser.parse_args()
alltoall(args.name, args.num_gpus, args.instances)
