"""Sums packets of scratch into scratch and sends the sum to the other rank as packets."""

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

with CollectiveProgram("reduce_send_packets_test", TestCollective(2, 0, 0), 2, protocol="LL"):
    slots = [Buffer(rank, 4) for rank in range(2)]
    for me in range(2):
        peer = 1 - me
        mine = slots[me]
        channel = MemoryChannel(peer, me)
        Rank(me).reduce(mine[0:1], [mine[1:2]], tb=0, dst_chunk=mine[2:3], packet=True)
        channel.put_packets(slots[peer][3:4], mine[2:3], tb=0)
    print(JSON())
