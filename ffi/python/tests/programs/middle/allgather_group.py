"""Allgather through a switch group: the rank of each store is that of the rank object made last."""

from mscclpp.language import *

GPUS = 4

with CollectiveProgram("allgather_group", AllGather(GPUS, 1, True), GPUS) as program:
    group = SwitchChannel(rank_list=list(range(GPUS)), buffer_type=BufferType.output, tag=1)
    for gpu in range(GPUS):
        lanes = [Channel(peer, gpu) for peer in range(GPUS) if peer != gpu]
        for lane in lanes:
            lane.relaxedSignal(0, SyncType.none)
        for lane in lanes:
            lane.relaxedWait(0, SyncType.after)
        rank = Rank(gpu)
        group.group_store(rank.get_output_buffer()[gpu : gpu + 1], gpu, 1)
        for lane in lanes:
            lane.signal(tb=0, sync="before")
        for lane in lanes:
            lane.wait(tb=0, sync="after")

print(program.to_json())
