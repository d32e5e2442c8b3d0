"""Adds chunks of the peer's input to one's own; `--send` also stores the sum with the peer."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

parser = argparse.ArgumentParser()
parser.add_argument("--sources", type=int, default=1)
parser.add_argument("--calls", choices=["one", "each"], default="one")
parser.add_argument("--send", action="store_true")
args = parser.parse_args()

name = "read_reduce_send_test" if args.send else "read_reduce_test"
with CollectiveProgram(name, TestCollective(2, 2, 2), 2):
    for me in range(2):
        peer = 1 - me
        channel = MemoryChannel(peer, me)
        mine = Rank(me).get_input_buffer()
        sums = Rank(me).get_output_buffer()
        theirs = Rank(peer).get_input_buffer()
        wanted = [theirs[index : index + 1] for index in range(2 - args.sources, 2)]
        channel.signal(tb=0, relaxed=True)
        channel.wait(tb=0, relaxed=True)
        if args.calls == "one":
            channel.reduce(mine[0:1], wanted, tb=0, local_dst_chunk=sums[0:1])
        else:
            for chunk in wanted:
                channel.reduce(mine[0:1], [chunk], tb=0, local_dst_chunk=sums[0:1])
        if args.send:
            channel.put(Rank(peer).get_output_buffer()[1:2], sums[0:1], tb=0)
        channel.signal(tb=0, data_sync=SyncType.before)
        channel.wait(tb=0, data_sync=SyncType.after)
    print(JSON())
