"""Waits until what was sent over one port channel, or over two at once, has left."""

import argparse

from antiphon.language.channel import PortChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram

parser = argparse.ArgumentParser()
parser.add_argument("--channels", type=int, default=1)
args = parser.parse_args()

with CollectiveProgram("flush_test", TestCollective(2, 0, 0), 2):
    channels = [PortChannel(1, 0) for _ in range(args.channels)]
    if len(channels) == 1:
        channels[0].flush(tb=0, data_sync=SyncType.before)
    else:
        for channel in channels:
            channel.flush(tb=0)
    print(JSON())
