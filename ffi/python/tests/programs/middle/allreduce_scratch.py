"""Allreduce through scratch: send everyone their slice, add up one's own, send it back."""

import sys

from mscclpp.language import *


def allreduce(num_gpus):
    with CollectiveProgram("allreduce_scratch", AllReduce(num_gpus, 1, True), num_gpus) as program:
        data = [Rank(gpu).get_input_buffer() for gpu in range(num_gpus)]
        inbox = [Buffer(gpu, num_gpus) for gpu in range(num_gpus)]
        for gpu in range(num_gpus):
            peers = [peer for peer in range(num_gpus) if peer != gpu]
            to = {peer: Channel(peer, gpu) for peer in peers}
            own = data[gpu][gpu : gpu + 1]
            for peer in peers:
                to[peer].relaxedSignal(tb=0, data_sync=SyncType.none)
            for peer in peers:
                to[peer].relaxedWait(tb=0, data_sync=SyncType.after)
            for peer in peers:
                to[peer].put(inbox[peer][gpu : gpu + 1], data[gpu][peer : peer + 1], tb=0)
            for peer in peers:
                to[peer].signal(tb=0, sync="before")
            for peer in peers:
                to[peer].wait(tb=0, sync="after")
            rank = Rank(gpu)
            for peer in peers:
                rank.reduce(own, inbox[gpu][peer : peer + 1])
            for peer in peers:
                to[peer].put(data[peer][gpu : gpu + 1], own, tb=0)
            for peer in peers:
                to[peer].signal(tb=0, sync="both")
            for peer in peers:
                to[peer].wait(tb=0, sync="both")
        return program


print(allreduce(int(sys.argv[1]) if len(sys.argv) > 1 else 4).to_json())
