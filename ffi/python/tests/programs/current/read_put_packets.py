"""Two ranks pass packets on from scratch to scratch. (Nobody writes the first ones: the plan waits for ever.)"""

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer

with CollectiveProgram("read_put_packets_test", TestCollective(2, 0, 0), 2, protocol="LL"):
    scratch = [Buffer(rank, 2) for rank in range(2)]
    for me in range(2):
        peer = 1 - me
        MemoryChannel(peer, me).read_put_packets(scratch[peer][1:2], scratch[me][0:1], tb=0)
    print(JSON())
