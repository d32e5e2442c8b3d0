"""Allgather whose copies are shared by groups of blocks, in a loop of the newer spelling; imports name every module."""

from mscclpp.language.channel import Channel
from mscclpp.language.collectives import AllGather
from mscclpp.language.general import JSON
from mscclpp.language.internal.types import SyncType
from mscclpp.language.loop import Loop, LoopIterationContext
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Rank
from mscclpp.language.thread_block_group import ThreadBlockGroup
from mscclpp.language.utils import ReplicationPolicy

GPUS, BLOCKS = 2, [0, 1, 2]


def allgather(loop):
    group = ThreadBlockGroup(tb_list=BLOCKS)
    with CollectiveProgram(
        "allgather_blocks",
        AllGather(GPUS, 1, False),
        GPUS,
        instances=2,
        replication_policy=ReplicationPolicy.interleaved,
    ):
        for gpu in range(GPUS):
            rank, peer = Rank(gpu), 1 - gpu
            mine = rank.get_input_buffer()[0:1]
            lanes = [Channel(peer, gpu) for _ in BLOCKS]
            with loop(unit=2**14, num_chunks=1):
                rank.copy(rank.get_output_buffer()[gpu : gpu + 1], mine, tb_group=group)
                lanes[0].put(Rank(peer).get_output_buffer()[gpu : gpu + 1], mine, tb_group=group)
                for block, lane in zip(BLOCKS, lanes):
                    lane.signal(tb=block, data_sync=SyncType.before)
                    lane.wait(tb=block, sync="after")
        return JSON()


plans = [allgather(loop) for loop in (LoopIterationContext, Loop.iteration)]
assert plans[0] == plans[1]
print(plans[0])
