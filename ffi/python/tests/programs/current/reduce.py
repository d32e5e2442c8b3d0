"""Sums chunks of one rank's input into its output, by one thread block or by a group."""

import argparse

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank
from antiphon.language.thread_block_group import ThreadBlockGroup

parser = argparse.ArgumentParser()
parser.add_argument("--chunks", type=int, default=2)
parser.add_argument("--calls", choices=["one", "each"], default="one")
parser.add_argument("--blocks", type=int, default=1)
args = parser.parse_args()

with CollectiveProgram("reduce_test", TestCollective(1, args.chunks, args.chunks - 1), 1):
    rank = Rank(0)
    source = rank.get_input_buffer()
    target = rank.get_output_buffer()[0:1]
    if args.blocks == 1:
        where = {"tb": 0}
    else:
        where = {"tb_group": ThreadBlockGroup(tb_list=list(range(args.blocks)))}
    others = [source[index : index + 1] for index in range(1, args.chunks)]
    for group in [others] if args.calls == "one" else [[other] for other in others]:
        rank.reduce(source[0:1], group, dst_chunk=target, **where)
    print(JSON())
