"""Alltoall in place between two ranks; every way to make a semaphore that starts at nought."""

from mscclpp.language import *

GPUS = 2

with CollectiveProgram("alltoall_semaphores", AllToAll(GPUS, 2, True), GPUS) as program:
    boxes = [Buffer(gpu, 2) for gpu in range(GPUS)]
    anywhere = Semaphore(initial_value=0)
    for gpu in range(GPUS):
        rank = Rank(gpu)
        peer = 1 - gpu
        lane = Channel(peer, gpu)
        data = rank.get_input_buffer()
        theirs = data[2 * peer : 2 * peer + 2]
        sent = Semaphore(gpu, initial_value=0) if gpu else Semaphore(rank, initial_value=0)
        done = Rank.Semaphore(rank=rank, initial_value=0)
        lane.relaxedSignal(tb=0, data_sync=SyncType.none)
        lane.relaxedWait(tb=0, data_sync=SyncType.after)
        lane.put(boxes[peer][0:2], theirs, tb=0)
        lane.signal(tb=0, sync="before")
        sent.release(tb=0, sync="none")
        sent.acquire(tb=1, sync="none")
        lane.wait(tb=1, sync="after")
        rank.copy(theirs, boxes[gpu][0:2], tb=1)
        # Blocks 2 and 3 only hand a token on, by a semaphore of whichever rank is at work.
        done.release(tb=1, sync="before")
        done.acquire(tb=2, sync="after")
        anywhere.release(tb=2, sync="both")
        anywhere.acquire(tb=3, sync="both")

print(program.to_json())
