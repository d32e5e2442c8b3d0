"""Allreduce through a switch group: each rank loads the sum of its slice and stores it to all."""

from mscclpp.language import *


def allreduce(num_gpus):
    with CollectiveProgram("allreduce_group", AllReduce(num_gpus, 1, True), num_gpus) as program:
        group = SwitchChannel(rank_list=list(range(num_gpus)), buffer_type=Buffer.input)
        for gpu in range(num_gpus):
            lanes = [Channel(peer, gpu) for peer in range(num_gpus) if peer != gpu]
            own = Rank(gpu).get_input_buffer()[gpu : gpu + 1]
            for lane in lanes:
                lane.signal(tb=0, sync="none")
            for lane in lanes:
                lane.wait(tb=0, sync="after")
            group.at_rank(gpu).group_load_reduce(buffer_offset=gpu, size=1, dst_chunk=own, op="sum", tb=0)
            group.at_rank(gpu).group_store(own, buffer_offset=gpu, size=1, tb=0)
            for lane in lanes:
                lane.signal(tb=0, sync="before")
            for lane in lanes:
                lane.wait(tb=0, sync="after")
    return program


if __name__ == "__main__":
    print(allreduce(4).to_json())
