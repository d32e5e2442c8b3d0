"""Reduce-scatter over several nodes: chunks are summed on each node, and the sums by their owners."""

from __future__ import annotations

from antiphon.default_algos._nodes import groups, nodes, run
from antiphon.language import (
    AlgoSpec,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
    ReduceScatter,
    ThreadBlockGroup,
)

__all__ = ["reducescatter_multi_nodes"]


def reducescatter_multi_nodes(spec: AlgoSpec, thread_block_group_size: int = 1) -> CollectiveProgram:
    """Reduce-scatter in place of one node or more.

    For each node, a rank adds up what the ranks of its own node have for the rank at its place there, and sends that rank the
    sum. A group of `thread_block_group_size` thread blocks works for each other rank of the node, and one for each node.

    Raises ValueError for other collectives and protocols, out of place, for chunk factors other than 1, for ranks that do not
    fill nodes, and for a single rank.
    """
    node_count, per_node = nodes(spec, ReduceScatter, in_place=True)
    size = groups(spec, thread_block_group_size)

    def blocks(number: int) -> list[int]:
        return list(range(number * size, (number + 1) * size))

    with CollectiveProgram.from_spec(spec) as program:
        ranks = range(spec.world_size)
        # Scratch: for each node what comes from the node's own ranks, by place; then a sum from each node. A rank sends
        # nothing to itself, so it packs what goes to another node at its own place.
        scratch = [Buffer(rank, spec.world_size + node_count) for rank in ranks]
        for me in ranks:
            node, place = divmod(me, per_node)
            rank, mine = Rank(me), scratch[me]
            data = rank.get_input_buffer()
            others = [other for other in range(per_node) if other != place]
            far = [other for other in range(node_count) if other != node]

            for at, other in enumerate(others):
                peer = node * per_node + other
                channel = MemoryChannel(peer, me)
                for owner in range(node_count):
                    to = run(scratch[peer], owner * per_node + place)
                    mine_for_peer = run(data, owner * per_node + other)
                    channel.put_packets(to, mine_for_peer, tb_group=ThreadBlockGroup(blocks(at)))

            for owner in [*far, node]:
                own = blocks(len(others) + owner)
                workers = ThreadBlockGroup(own)
                chunk = run(data, owner * per_node + place)
                arrived = [run(mine, owner * per_node + other) for other in others]
                if owner == node:
                    arrived += [run(mine, spec.world_size + other) for other in far]
                if arrived:
                    rank.reduce(chunk, arrived, tb_group=workers, packet=True)
                if owner != node:
                    twin = owner * per_node + place
                    packed = run(mine, owner * per_node + place)
                    rank.copy_packets(packed, chunk, tb_group=workers)
                    to = run(scratch[twin], spec.world_size + node)
                    # Each block sends its part over a channel of its own: what two blocks post to one channel has no order.
                    for block in own:
                        PortChannel(twin, me).read_put_packets(to, packed, tb=block, tb_group=workers)
    return program
