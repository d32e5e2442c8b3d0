"""Ring allgather over channels whose tags say which channel of one rank meets which of the other.

With two ranks both channels of a rank lead to the same peer; in order of creation the wrong ones would meet.
"""

import sys

from mscclpp.language import *

num_gpus = int(sys.argv[1]) if len(sys.argv) > 1 else 2

with CollectiveProgram("allgather_ring_tags", AllGather(num_gpus, 1, True), num_gpus):
    output = [Rank(gpu).get_output_buffer() for gpu in range(num_gpus)]
    for gpu in range(num_gpus):
        following, previous = (gpu + 1) % num_gpus, (gpu - 1) % num_gpus
        send = Channel(following, gpu, Channel.memory, tag=gpu)
        receive = Channel(dst_rank=previous, src_rank=gpu, channel_type=ChannelType.memory, tag=previous)
        for step in range(num_gpus - 1):
            chunk_id = (gpu - step) % num_gpus
            piece = slice(chunk_id, chunk_id + 1)
            send.put(output[following][piece], output[gpu][piece], tb=0)
            send.signal(tb=0, sync="before")
            receive.wait(tb=0, sync="after")
    print(JSON())
