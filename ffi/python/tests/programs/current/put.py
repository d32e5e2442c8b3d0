"""Each of two ranks writes to the other's input; with `--cross`, both chunks change places over two channels."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

parser = argparse.ArgumentParser()
parser.add_argument("--cross", action="store_true")
args = parser.parse_args()

with CollectiveProgram("put_test", TestCollective(2, 2, 0), 2):
    for me in range(2):
        peer = 1 - me
        channels = [MemoryChannel(peer, me) for _ in range(2 if args.cross else 1)]
        mine = Rank(me).get_input_buffer()
        theirs = Rank(peer).get_input_buffer()
        channels[0].signal(tb=0, relaxed=True)
        channels[0].wait(tb=0, relaxed=True)
        channels[0].put(theirs[1:2], mine[0:1], tb=0)
        if args.cross:
            channels[1].put(theirs[0:1], mine[1:2], tb=0)
        channels[-1].signal(tb=0, data_sync=SyncType.before)
        channels[-1].wait(tb=0, data_sync=SyncType.after)
    print(JSON())
