"""Allgather in place over port channels: put, signal and flush as three calls to one peer, as one call to the other."""

from mscclpp.language import *

GPUS = 3

with CollectiveProgram("allgather_ports", AllGather(GPUS, 1, True), GPUS) as program:
    output = [Rank(gpu).get_output_buffer() for gpu in range(GPUS)]
    for gpu in range(GPUS):
        following, previous = (gpu + 1) % GPUS, (gpu - 1) % GPUS
        ahead = Channel(following, gpu, Channel.port)
        behind = Channel(previous, gpu, ChannelType.port)
        own = output[gpu][gpu : gpu + 1]
        ahead.put(output[following][gpu : gpu + 1], own, tb=0)
        ahead.signal(tb=0, sync="before")
        ahead.flush(tb=0, sync="both")
        behind.put_with_signal_and_flush(output[previous][gpu : gpu + 1], own, tb=0)
        behind.wait(tb=0, sync="none")
        ahead.wait(tb=0, sync="after")

print(program.to_json())
