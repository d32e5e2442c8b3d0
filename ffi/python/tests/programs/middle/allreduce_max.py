"""Allreduce that takes the greatest element; the operation is named by its enum, by a word, and in the newer keyword."""

from mscclpp.language import *

GPUS = 4

with CollectiveProgram("allreduce_max", AllReduce(GPUS, 1, True), GPUS) as program:
    inbox = [Buffer(gpu, GPUS) for gpu in range(GPUS)]
    for gpu in range(GPUS):
        rank = Rank(gpu)
        data = rank.get_input_buffer()
        own = data[gpu : gpu + 1]
        lanes = {peer: Channel(peer, gpu) for peer in range(GPUS) if peer != gpu}
        for lane in lanes.values():
            lane.signal(tb=0, sync="none")
        for lane in lanes.values():
            lane.wait(tb=0, sync="after")
        for peer, lane in lanes.items():
            lane.put(inbox[peer][gpu : gpu + 1], data[peer : peer + 1], tb=0)
        for lane in lanes.values():
            lane.signal(tb=0, sync="before")
        for lane in lanes.values():
            lane.wait(tb=0, sync="after")
        first, second, third = (inbox[gpu][peer : peer + 1] for peer in lanes)
        rank.reduce(own, first, op=ReduceOperationType.max, tb=0)
        rank.reduce(own, second, op="max", tb=0)
        Rank.reduce(own, third, reduce_op=ReduceOperationType.max, tb=0)
        for peer, lane in lanes.items():
            lane.put(Rank(peer).get_input_buffer()[gpu : gpu + 1], own, tb=0)
        for lane in lanes.values():
            lane.signal(tb=0, sync="before")
        for lane in lanes.values():
            lane.wait(tb=0, sync="after")

print(program.to_json())
