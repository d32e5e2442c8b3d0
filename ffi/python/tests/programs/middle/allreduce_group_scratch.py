"""Switch allreduce staged in scratch; the group is made before its members' scratch is."""

from mscclpp.language import *

GPUS = 3


def meet(lanes):
    for lane in lanes:
        lane.signal(tb=0, sync="before")
    for lane in lanes:
        lane.wait(tb=0, sync="after")


with CollectiveProgram("allreduce_group_scratch", AllReduce(GPUS, 1, True), GPUS):
    group = SwitchChannel(rank_list=[0, 1, 2], buffer=Buffer.scratch)
    for gpu in range(GPUS):
        rank = Rank(gpu)
        data = rank.get_input_buffer()
        stage = Buffer(gpu, GPUS)
        lanes = [Channel(peer, gpu) for peer in range(GPUS) if peer != gpu]
        rank.copy(stage[0:GPUS], data[0:GPUS])
        meet(lanes)
        group.at_rank(gpu).group_load_reduce(gpu, 1)
        group.at_rank(gpu).group_store(gpu, 1)
        meet(lanes)
        rank.copy(data[0:GPUS], stage[0:GPUS], tb=0)
        # The next launch stages again: all must have read this one's sums.
        meet(lanes)
    print(JSON())
