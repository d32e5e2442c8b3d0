"""The ring alltoall of n ranks: every block goes round the ring until it is where it belongs."""

import sys

from antiphon.language import AllToAll, Buffer, CollectiveProgram, MemoryChannel, Rank

RANKS = int(sys.argv[1])


def one(index):
    return slice(index, index + 1)


with CollectiveProgram("ring_alltoall", AllToAll(RANKS, 1, False), RANKS):
    # What a rank still has to pass on after each step, one chunk for each distance still to go.
    inbox = [[Buffer(rank, RANKS - step) for step in range(1, RANKS)] for rank in range(RANKS)]
    to_next, to_previous = {}, {}
    for rank in range(RANKS):
        following = (rank + 1) % RANKS
        to_next[rank] = MemoryChannel(following, rank)
        to_previous[following] = MemoryChannel(rank, following)
    for me in range(RANKS):
        rank, following = Rank(me), (me + 1) % RANKS
        inputs, outputs = rank.get_input_buffer(), rank.get_output_buffer()
        rank.copy(outputs[one(me)], inputs[one(me)], tb=0)
        for away in range(1, RANKS):
            to_next[me].put(inbox[following][0][one(away - 1)], inputs[one((me + away) % RANKS)], tb=0)
        for step in range(1, RANKS):
            to_next[me].signal(tb=0)
            to_previous[me].wait(tb=0)
            arrived = inbox[me][step - 1]
            rank.copy(outputs[one((me - step) % RANKS)], arrived[one(0)], tb=0)
            for left in range(1, RANKS - step):
                to_next[me].put(inbox[following][step][one(left - 1)], arrived[one(left)], tb=0)
