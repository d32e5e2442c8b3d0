"""Allreduce over several nodes: summed on each node, then between the nodes, then spread on each node."""

from __future__ import annotations

from antiphon.default_algos._nodes import groups, nodes, run
from antiphon.language import (
    AlgoSpec,
    AllReduce,
    Buffer,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
    ThreadBlockGroup,
)

__all__ = ["allreduce_multi_nodes"]


def allreduce_multi_nodes(spec: AlgoSpec, thread_block_group_size: int = 1) -> CollectiveProgram:
    """Allreduce in place of two or more nodes of two or more ranks each.

    The rank at place l of a node owns the l-th slice of the data. Every rank sends each slice to its owner on the node,
    which adds them up; owners of the same slice exchange their sums; each adds them up again and sends the result
    to the others of its node. Thread block 0 sends between nodes, a group of `thread_block_group_size` blocks works for
    each other rank of the node, and all of these together add up.

    Raises ValueError for other collectives and protocols, and for ranks that do not fill two nodes or more.
    """
    node_count, per_node = nodes(spec, AllReduce, in_place=True, one=False)
    size = groups(spec, thread_block_group_size)
    if per_node < 2:
        raise ValueError(f"cannot make {spec.name!r}: saw 1 rank on a node, allowed 2 or more")
    # Scratch: slices from the node's ranks, sums from the nodes, results from the node's ranks.
    sums = node_count * per_node
    results = sums + node_count * node_count
    workers = ThreadBlockGroup(list(range(1, 1 + (per_node - 1) * size)))

    def slots(start: int, which: int) -> slice:
        """The chunks of a slice of the data, or of a region of scratch."""
        return slice(start + which * node_count, start + (which + 1) * node_count)

    with CollectiveProgram.from_spec(spec) as program:
        ranks = range(spec.world_size)
        scratch = [Buffer(rank, results + node_count * per_node) for rank in ranks]
        for me in ranks:
            node, place = divmod(me, per_node)
            rank, mine = Rank(me), scratch[me]
            data = rank.get_input_buffer()
            others = [other for other in range(per_node) if other != place]
            far = [other for other in range(node_count) if other != node]
            peers = {other: node * per_node + other for other in others}
            channel = {other: MemoryChannel(peers[other], me) for other in others}
            blocks = {
                other: ThreadBlockGroup(list(range(1 + at * size, 1 + (at + 1) * size)))
                for at, other in enumerate(others)
            }
            own = data[slots(0, place)]
            for other in others:
                to = scratch[peers[other]][slots(0, place)]
                channel[other].put_packets(to, data[slots(0, other)], tb_group=blocks[other])
            rank.reduce(own, [mine[slots(0, other)] for other in others], tb_group=workers, packet=True)
            rank.copy_packets(mine[slots(0, place)], own, tb_group=workers)

            # A port sends packets as they are at that moment and waits for none.
            rank.barrier([0, *range(1, 1 + (per_node - 1) * size)])
            for other in far:
                twin = other * per_node + place
                to = run(scratch[twin], sums + node * node_count, node_count)
                PortChannel(twin, me).put_packets(to, mine[slots(0, place)], tb=0)

            arrived = [run(mine, sums + other * node_count, node_count) for other in far]
            rank.reduce(own, arrived, tb_group=workers, packet=True)
            total = run(mine, sums + node * node_count, node_count)
            rank.copy_packets(total, own, tb_group=workers)
            for other in others:
                to = scratch[peers[other]][slots(results, place)]
                channel[other].read_put_packets(to, total, tb_group=workers)
            for other in others:
                rank.unpack_packets(data[slots(0, other)], mine[slots(results, other)], tb_group=blocks[other])
    return program
