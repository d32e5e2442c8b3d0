"""The shortest switch allreduce: no list of ranks, no rank named at the operation, no chunk for the sum."""

from mscclpp.language import *

GPUS = 2

with CollectiveProgram("allreduce_group_short", AllReduce(GPUS, 1, True), GPUS) as program:
    group = SwitchChannel(rank_list=[], buffer=Buffer.input, tag=7)
    for gpu in range(GPUS):
        lane = Channel(1 - gpu, gpu)
        lane.signal(tb=0)
        lane.wait(tb=0)
        group.group_reduce(gpu, 1)
        group.group_broadcast(gpu, 1)
        lane.signal(tb=0)
        lane.wait(tb=0)

print(program.to_json())
