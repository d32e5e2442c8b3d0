"""Alltoall out of place, through scratch: the corrected copy of alltoall_leaked_variable.py.

The last loop copies with its own variable.
"""

from mscclpp.language import *

GPUS = 3

with CollectiveProgram("alltoall_leaked_variable_corrected", AllToAll(GPUS, 1, False), GPUS) as program:
    boxes = [Buffer(gpu, GPUS) for gpu in range(GPUS)]
    for gpu in range(GPUS):
        rank = Rank(gpu)
        data, output = rank.get_input_buffer(), rank.get_output_buffer()
        lanes = {peer: Channel(peer, gpu) for peer in range(GPUS) if peer != gpu}
        rank.copy(output[gpu : gpu + 1], data[gpu : gpu + 1], tb=0)
        for lane in lanes.values():
            lane.signal(tb=0, sync="none")
        for lane in lanes.values():
            lane.wait(tb=0, sync="after")
        for peer, lane in lanes.items():
            lane.put(boxes[peer][gpu : gpu + 1], data[peer : peer + 1], tb=0)
        for lane in lanes.values():
            lane.signal(tb=0, sync="before")
        for source, lane in lanes.items():
            lane.wait(tb=0, sync="after")
            rank.copy(output[source : source + 1], boxes[gpu][source : source + 1], tb=0)

print(program.to_json())
