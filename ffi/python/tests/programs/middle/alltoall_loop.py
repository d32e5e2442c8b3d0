"""Alltoall in steps of 64 KiB: one block sends, another copies in place what came once the slice has been sent."""

import argparse

from mscclpp.language import *


def alltoall(num_gpus, unit):
    with CollectiveProgram("alltoall_loop", AllToAll(num_gpus, 1, True), num_gpus) as program:
        boxes = [Buffer(gpu, num_gpus) for gpu in range(num_gpus)]
        for gpu in range(num_gpus):
            rank = Rank(gpu)
            data = rank.get_input_buffer()
            peers = [peer for peer in range(num_gpus) if peer != gpu]
            for at, peer in enumerate(peers):
                sender, receiver = 2 * at, 2 * at + 1
                stream, ready = Channel(peer, gpu), Channel(peer, gpu)
                sent = Rank.Semaphore(rank=gpu, size=2, tag=at)
                ready.relaxedSignal(tb=sender, data_sync=SyncType.both)
                ready.relaxedWait(tb=sender, data_sync=SyncType.both)
                with Loop.iteration(unit=unit, num_chunks=1) as step:
                    stream.put(
                        boxes[peer][gpu : gpu + 1], data[peer : peer + 1], tb=sender, iter_context=step
                    )
                    stream.signal(tb=sender, sync="before", iter_context=step)
                    sent.release(tb=sender, sync="before", iter_context=step)
                    sent.acquire(tb=receiver, sync="after", iter_context=step)
                    stream.wait(tb=receiver, sync="after", iter_context=step)
                    rank.copy(
                        data[peer : peer + 1], boxes[gpu][peer : peer + 1], tb=receiver, iter_context=step
                    )
    return program


parser = argparse.ArgumentParser()
parser.add_argument("--num_gpus", type=int, default=3)
parser.add_argument("--unit", type=int, default=2**16)
args = parser.parse_args()
print(alltoall(args.num_gpus, args.unit).to_json())
