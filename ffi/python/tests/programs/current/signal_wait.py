"""Two ranks signal each other: on one channel, or on two of four and waiting on the other two.

With four channels both ranks signal channels 0 and 1 and wait on 2 and 3, where nobody signals.
"""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram

parser = argparse.ArgumentParser()
parser.add_argument("--relaxed", action="store_true")
parser.add_argument("--four", action="store_true")
args = parser.parse_args()

name = "relaxed_signal_wait_test" if args.relaxed else "signal_wait_test"
with CollectiveProgram(name, TestCollective(2, 0, 0), 2):
    for me in range(2):
        if args.four:
            channels = [MemoryChannel(1 - me, me) for _ in range(4)]
            for channel in channels[:2]:
                channel.signal(tb=0, relaxed=args.relaxed)
            for channel in channels[2:]:
                channel.wait(tb=0, relaxed=args.relaxed)
        elif args.relaxed:
            channel = MemoryChannel(1 - me, me)
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, relaxed=True)
        else:
            channel = MemoryChannel(1 - me, me)
            channel.signal(tb=0, data_sync=SyncType.before)
            channel.wait(tb=0, data_sync=SyncType.after)
    print(JSON())
