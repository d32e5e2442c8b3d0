"""Sums two input chunks and stores the sum here and with the peer, by one thread block or by a group of them."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank
from antiphon.language.thread_block_group import ThreadBlockGroup

parser = argparse.ArgumentParser()
parser.add_argument("--blocks", type=int, default=1)
args = parser.parse_args()

with CollectiveProgram("reduce_send_test", TestCollective(2, 2, 2), 2):
    where = {"tb": 0} if args.blocks == 1 else {"tb_group": ThreadBlockGroup(tb_list=list(range(args.blocks)))}
    for me in range(2):
        peer = 1 - me
        rank = Rank(me)
        channel = MemoryChannel(peer, me)
        source, target = rank.get_input_buffer(), rank.get_output_buffer()
        channel.signal(tb=0, relaxed=True)
        channel.wait(tb=0, relaxed=True)
        rank.reduce(source[0:1], [source[1:2]], dst_chunk=target[0:1], **where)
        channel.put(Rank(peer).get_output_buffer()[1:2], target[0:1], **where)
        channel.signal(tb=0, data_sync=SyncType.before)
        channel.wait(tb=0, data_sync=SyncType.after)
    print(JSON())
