"""Reduce-scatter by reading: copy and reduce are called on the class, the chunks say whose they are."""

from mscclpp.language import *

SIZE = 4

with CollectiveProgram("reducescatter_on_the_class", ReduceScatter(SIZE, 1, True), SIZE) as program:
    staging = {gpu: Buffer(gpu, SIZE) for gpu in range(SIZE)}
    for gpu in range(SIZE):
        channels = {peer: Channel(peer, gpu, Channel.memory) for peer in range(SIZE) if peer != gpu}
        total = staging[gpu][gpu : gpu + 1]
        Rank.copy(total, Chunk(gpu, gpu, 1))
        for channel in channels.values():
            channel.signal(tb=0, sync="none")
        for channel in channels.values():
            channel.wait(tb=0, sync="after")
        for peer, channel in channels.items():
            channel.get(staging[gpu][peer : peer + 1], Chunk(peer, gpu, 1), tb=0)
        for peer in channels:
            Rank.reduce(total, staging[gpu][peer : peer + 1], op="sum", tb=0)
        # Nobody may change its input before everyone has read it.
        for channel in channels.values():
            channel.signal(tb=0, sync="before")
        for channel in channels.values():
            channel.wait(tb=0, sync="after")
        Rank.copy(Chunk(gpu, gpu, 1), total, tb=0)

print(program.to_json())
