"""The two-shot packet allreduce of n ranks whose every rank divides its part in n chunks.

As it is written: n(n-1) puts of whole parts, n·n(n-1) reductions chunk by chunk and peer by peer, and n(n-1) puts and
unpackings of the results.
"""

import sys

from antiphon.language import AllReduce, Buffer, CollectiveProgram, MemoryChannel, Rank

RANKS = int(sys.argv[1])


def part(rank):
    return slice(rank * RANKS, (rank + 1) * RANKS)


with CollectiveProgram(
    "two_shot_packets", AllReduce(RANKS, RANKS, True), RANKS, protocol="LL", use_double_scratch_buffer=True
):
    arriving = [Buffer(rank, RANKS * RANKS) for rank in range(RANKS)]
    results = [Buffer(rank, RANKS * RANKS) for rank in range(RANKS)]
    for me in range(RANKS):
        rank, peers = Rank(me), [peer for peer in range(RANKS) if peer != me]
        data = rank.get_input_buffer()
        channels = {peer: MemoryChannel(peer, me) for peer in peers}
        for peer in peers:
            channels[peer].put_packets(arriving[peer][part(me)], data[part(peer)], tb=0)
        for chunk in range(RANKS):
            own = data[me * RANKS + chunk:me * RANKS + chunk + 1]
            for peer in peers:
                at = peer * RANKS + chunk
                rank.reduce(own, [arriving[me][at:at + 1]], tb=0, packet=True)
        for peer in peers:
            channels[peer].put_packets(results[peer][part(me)], data[part(me)], tb=0)
        for peer in peers:
            rank.unpack_packets(data[part(peer)], results[me][part(peer)], tb=0)
