"""Two ranks send each other their input as packets."""

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

with CollectiveProgram("put_packets_test", TestCollective(2, 1, 0), 2, protocol="LL"):
    scratch = [Buffer(rank, 1) for rank in range(2)]
    for me in range(2):
        peer = 1 - me
        channel = MemoryChannel(peer, me)
        channel.put_packets(scratch[peer][0:1], Rank(me).get_input_buffer()[0:1], tb=0)
    print(JSON())
