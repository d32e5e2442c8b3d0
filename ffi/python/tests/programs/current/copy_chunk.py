"""Copies a rank's input to its output, with one thread block or with a group that shares the chunk."""

import argparse

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank
from antiphon.language.thread_block_group import ThreadBlockGroup

parser = argparse.ArgumentParser()
parser.add_argument("--blocks", type=int, default=1)
args = parser.parse_args()

with CollectiveProgram("copy_test", TestCollective(1, 1, 1), 1):
    rank = Rank(0)
    source = rank.get_input_buffer()[0:1]
    target = rank.get_output_buffer()[0:1]
    if args.blocks == 1:
        rank.copy(target, source, tb=0)
    else:
        rank.copy(target, source, tb_group=ThreadBlockGroup(tb_list=list(range(args.blocks))))
    print(JSON())
