"""Allgather whose copies run in a loop with the unit and number of chunks that a loop has when none are named."""

from mscclpp.language import *

GPUS = 2

with CollectiveProgram("allgather_loop_defaults", AllGather(GPUS, 1, False), GPUS):
    for gpu in range(GPUS):
        rank = Rank(gpu)
        peer = 1 - gpu
        channel = Channel(peer, gpu)
        mine = rank.get_input_buffer()[0:1]
        with Loop.iteration() as it:
            channel.put(Rank(peer).get_output_buffer()[gpu : gpu + 1], mine, tb=0)
            channel.signal(tb=0, sync="before")
            rank.copy(rank.get_output_buffer()[gpu : gpu + 1], mine, tb=0, iter_context=it)
            channel.wait(tb=0, sync="after")
    print(JSON())
