"""A ring allreduce: partial sums travel once round the ring of ranks, then the results do.

Compile and run it: `cargo run --release -- run examples/dsl/ring_allreduce.py --size 1M`.
"""

import sys

from antiphon.language import (
    AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank,
)

RANKS = int(sys.argv[1]) if len(sys.argv) > 1 else 4

with CollectiveProgram("ring_allreduce", AllReduce(RANKS, 1, False), RANKS):
    # What arrives from the previous rank in each step.
    inbox = [Buffer(rank, RANKS - 1) for rank in range(RANKS)]
    # Channels are one-sided; the k-th of one direction is paired with the k-th of the other.
    to_next, to_previous = {}, {}
    for rank in range(RANKS):
        following = (rank + 1) % RANKS
        to_next[rank] = MemoryChannel(following, rank)
        to_previous[following] = MemoryChannel(rank, following)

    for me in range(RANKS):
        rank, following = Rank(me), (me + 1) % RANKS
        inputs, outputs = rank.get_input_buffer(), rank.get_output_buffer()
        theirs = Rank(following).get_output_buffer()

        def pass_on(step):
            """The slice that this rank sends on in a step: what it received in the step before."""
            index = (me - step) % RANKS
            return slice(index, index + 1)

        to_next[me].put(inbox[following][0:1], inputs[pass_on(0)], tb=0)
        for step in range(1, RANKS):
            to_next[me].signal(tb=0)
            to_previous[me].wait(tb=0)
            received, own = inbox[me][step - 1:step], inputs[pass_on(step)]
            if step < RANKS - 1:
                rank.reduce(received, [own], tb=0)
                to_next[me].put(inbox[following][step:step + 1], received, tb=0)
            else:
                rank.reduce(received, [own], tb=0, dst_chunk=outputs[pass_on(step)])
                to_next[me].put(theirs[pass_on(step)], outputs[pass_on(step)], tb=0)
        for step in range(RANKS, 2 * RANKS - 1):
            to_next[me].signal(tb=0)
            to_previous[me].wait(tb=0)
            if step < 2 * RANKS - 2:
                to_next[me].put(theirs[pass_on(step)], outputs[pass_on(step)], tb=0)
