"""A port channel's put that signals in the same request, and with `--flush` also waits for it to have left."""

import argparse

from antiphon.language.channel import PortChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

parser = argparse.ArgumentParser()
parser.add_argument("--flush", action="store_true")
args = parser.parse_args()

name = "put_with_signal_and_flush_test" if args.flush else "put_with_signal_test"
with CollectiveProgram(name, TestCollective(2, 2, 0), 2):
    for me in range(2):
        peer = 1 - me
        channel = PortChannel(peer, me)
        channel.signal(tb=0)
        channel.wait(tb=0)
        send = channel.put_with_signal_and_flush if args.flush else channel.put_with_signal
        send(Rank(peer).get_input_buffer()[1:2], Rank(me).get_input_buffer()[0:1], tb=0)
        channel.wait(tb=0, data_sync=SyncType.after)
    print(JSON())
