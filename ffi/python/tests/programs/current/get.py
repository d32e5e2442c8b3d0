"""Each of two ranks reads a chunk of the other's input, once or as often as asked."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

parser = argparse.ArgumentParser()
parser.add_argument("--times", type=int, default=1)
args = parser.parse_args()

with CollectiveProgram("get_test", TestCollective(2, 2, 0), 2):
    for me in range(2):
        peer = 1 - me
        channel = MemoryChannel(peer, me)
        channel.signal(tb=0, relaxed=True)
        channel.wait(tb=0, relaxed=True)
        mine = Rank(me).get_input_buffer()
        theirs = Rank(peer).get_input_buffer()
        for _ in range(args.times):
            channel.get(mine[0:1], theirs[1:2], tb=0)
        channel.signal(tb=0, data_sync=SyncType.before)
        channel.wait(tb=0, data_sync=SyncType.after)
    print(JSON())
