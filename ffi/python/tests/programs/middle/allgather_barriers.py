"""Allgather by three blocks that meet: at a barrier of two named blocks, and at one of all blocks of the rank."""

from mscclpp.language import *

GPUS = 2

with CollectiveProgram("allgather_barriers", AllGather(GPUS, 1, False), GPUS) as program:
    boxes = [Buffer(gpu, 1) for gpu in range(GPUS)]
    for gpu in range(GPUS):
        peer = 1 - gpu
        rank = Rank(gpu)
        mine = rank.get_input_buffer()[0:1]
        output = rank.get_output_buffer()
        lane = Channel(peer, gpu)
        # Block 0 talks to the peer, block 1 copies what arrived, block 2 keeps the rank's own chunk.
        lane.relaxedSignal(tb=0, data_sync=SyncType.none)
        lane.relaxedWait(tb=0, data_sync=SyncType.after)
        lane.put(boxes[peer][0:1], mine, tb=0)
        lane.signal(tb=0, sync="before")
        lane.wait(tb=0, sync="after")
        rank.copy(output[gpu : gpu + 1], mine, tb=2)
        rank.barrier(tb_list=[0, 1])
        rank.copy(output[peer : peer + 1], boxes[gpu][0:1], tb=1)
        rank.barrier(tb_list=[])

print(program.to_json())
