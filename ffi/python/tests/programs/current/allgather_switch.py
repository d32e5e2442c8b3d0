"""Allgather through a switch group on the users' own buffers, from an algorithm's specification."""

import argparse

from antiphon.language import AlgoSpec, ReplicationPolicy
from antiphon.language.channel import MemoryChannel, SwitchChannel
from antiphon.language.collectives import AllGather
from antiphon.language.internal.types import BufferType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank


def allgather(spec):
    ranks = spec.world_size
    with CollectiveProgram.from_spec(spec) as program:
        lanes = [[MemoryChannel(peer, me) for peer in range(ranks) if peer != me] for me in range(ranks)]
        group = SwitchChannel(list(range(ranks)), BufferType.output)
        for me, channels in enumerate(lanes):
            mine = Rank(me).get_output_buffer()[me : me + 1]
            for step in ("before", "after"):
                for channel in channels:
                    channel.signal(0, relaxed=True)
                for channel in channels:
                    channel.wait(0, relaxed=True)
                if step == "before":
                    group.at_rank(me).broadcast(mine, buffer_offset=me, size=1, tb=0)
        return program.to_json()


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_switch")
parser.add_argument("--num_gpus", type=int, default=8)
parser.add_argument("--instances", type=int, default=4)
args = parser.parse_args()
print(
    allgather(
        AlgoSpec(
            name=args.name,
            collective=AllGather(args.num_gpus, 1, True),
            nranks_per_node=args.num_gpus,
            world_size=args.num_gpus,
            in_place=True,
            instances=args.instances,
            protocol="Simple",
            replication_policy=ReplicationPolicy.interleaved,
            num_threads_per_block=256,
        )
    )
)
