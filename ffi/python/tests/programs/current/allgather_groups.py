"""Allgather on two nodes, out of place, with groups of thread blocks that share each copy.

Block 0 exchanges with the twin on the other node; a group of blocks serves each neighbour; the last group serves the
rank itself. A barrier of all blocks lies between the round with one's own chunk and the round with the twin's.
"""

import argparse

from antiphon.language.channel import MemoryChannel, PortChannel
from antiphon.language.collectives import AllGather
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank
from antiphon.language.thread_block_group import ThreadBlockGroup


def allgather(name, ranks, per_node, width):
    nodes = ranks // per_node
    with CollectiveProgram(name, AllGather(ranks, 1, False), ranks):
        scratch = [Buffer(rank, ranks) for rank in range(nodes * per_node)]
        for me in range(nodes * per_node):
            rank = Rank(me)
            mine = rank.get_input_buffer()[0:1]
            output = rank.get_output_buffer()
            first = me - me % per_node
            neighbours = [peer for peer in range(first, first + per_node) if peer != me]
            twin = (me + per_node) % ranks

            # Which blocks serve which neighbour, and the channel of each of them.
            blocks, groups, lanes = {}, {}, {}
            for at, peer in enumerate(neighbours + [me]):
                blocks[peer] = list(range(1 + at * width, 1 + (at + 1) * width))
                groups[peer] = ThreadBlockGroup(tb_list=blocks[peer])
            for peer in neighbours:
                lanes[peer] = [MemoryChannel(peer, me) for _ in blocks[peer]]
            across = PortChannel(twin, me)

            across.signal(tb=0, data_sync=SyncType.none)
            across.wait(tb=0, data_sync=SyncType.after)
            across.put_with_signal_and_flush(scratch[twin][me : me + 1], mine, tb=0)
            across.wait(tb=0)
            for peer in neighbours:
                for block, channel in zip(blocks[peer], lanes[peer]):
                    channel.signal(tb=block, data_sync=SyncType.none, relaxed=True)
                    channel.wait(tb=block, data_sync=SyncType.after, relaxed=True)

            # The first round spreads this node's chunks, the second those that came from the other.
            for away in (0, twin - me):
                sent = me + away
                chunk = scratch[me][sent : sent + 1] if away else mine
                if away:
                    rank.barrier(tb_list=list(range(1 + per_node * width)))
                for peer in neighbours:
                    lanes[peer][0].put(scratch[peer][sent : sent + 1], chunk, tb_group=groups[peer])
                    for block, channel in zip(blocks[peer], lanes[peer]):
                        channel.signal(tb=block, data_sync=SyncType.before)
                        channel.wait(tb=block, data_sync=SyncType.after)
                    kept = peer + away
                    rank.copy(output[kept : kept + 1], scratch[me][kept : kept + 1], tb_group=groups[peer])
                rank.copy(output[sent : sent + 1], chunk, tb_group=groups[me])
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_groups")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--gpus_per_node", type=int, default=4)
parser.add_argument("--group_size", type=int, default=2)
args = parser.parse_args()
allgather(args.name, args.num_gpus, args.gpus_per_node, args.group_size)
