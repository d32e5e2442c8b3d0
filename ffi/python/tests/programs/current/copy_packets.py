"""Packs a chunk of input into packets in scratch; with `--unpack`, takes them out again into the output."""

import argparse

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

parser = argparse.ArgumentParser()
parser.add_argument("--unpack", action="store_true")
args = parser.parse_args()

name = "unpack_packets_test" if args.unpack else "copy_packets_test"
with CollectiveProgram(name, TestCollective(1, 1, 1), 1, protocol="LL"):
    rank = Rank(0)
    slot = Buffer(0, 1)[0:1]
    rank.copy_packets(slot, rank.get_input_buffer()[0:1], tb=0)
    if args.unpack:
        rank.unpack_packets(rank.get_output_buffer()[0:1], slot, tb=0)
    print(JSON())
