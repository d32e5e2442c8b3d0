"""Alltoall in place with a semaphore between two blocks: the corrected copy of alltoall_semaphore_at_one.py.

The semaphore starts at nought, so the receiving block waits until the slice has been sent.
"""

from mscclpp.language import *

GPUS = 2
START = 0

with CollectiveProgram("alltoall_semaphore_at_one_corrected", AllToAll(GPUS, 1, True), GPUS) as program:
    boxes = [Buffer(gpu, 1) for gpu in range(GPUS)]
    for gpu in range(GPUS):
        rank = Rank(gpu)
        peer = 1 - gpu
        lane = Channel(peer, gpu)
        theirs = rank.get_input_buffer()[peer : peer + 1]
        sent = Rank.Semaphore(rank=gpu, initial_value=START)
        lane.relaxedSignal(tb=0, data_sync=SyncType.none)
        lane.relaxedWait(tb=0, data_sync=SyncType.after)
        lane.put(boxes[peer][0:1], theirs, tb=0)
        lane.signal(tb=0, sync="before")
        sent.release(tb=0, sync="before")
        sent.acquire(tb=1, sync="after")
        lane.wait(tb=1, sync="after")
        rank.copy(theirs, boxes[gpu][0:1], tb=1)

print(program.to_json())
