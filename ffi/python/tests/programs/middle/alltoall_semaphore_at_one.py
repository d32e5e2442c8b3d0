"""Alltoall in place as it was once published, with its fault: the semaphore starts at one.

The receiving block does not wait for the sending one: it may overwrite a slice before it has been sent, or take the
signal that its rank's sending block waits for.
"""

from mscclpp.language import *

GPUS = 2
START = 1

with CollectiveProgram("alltoall_semaphore_at_one", AllToAll(GPUS, 1, True), GPUS) as program:
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
