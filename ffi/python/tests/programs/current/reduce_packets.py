"""Sums packets in scratch, without a sender: a plan to look at, not to run."""

import argparse

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

parser = argparse.ArgumentParser()
parser.add_argument("--sources", type=int, default=1)
parser.add_argument("--calls", choices=["one", "each"], default="one")
args = parser.parse_args()

with CollectiveProgram("reduce_packets_test", TestCollective(1, 0, 0), 1, protocol="LL"):
    slots = Buffer(0, args.sources + 2)
    packets = [slots[index : index + 1] for index in range(1, args.sources + 1)]
    target = slots[args.sources + 1 : args.sources + 2]
    for group in [packets] if args.calls == "one" else [[packet] for packet in packets]:
        Rank(0).reduce(slots[0:1], group, tb=0, dst_chunk=target, packet=True)
    print(JSON())
