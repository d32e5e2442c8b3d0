"""Allgather over several nodes: each rank's chunk goes to its node and, once, to every other node, which hands it on."""

from __future__ import annotations

from antiphon.default_algos._nodes import nodes, run
from antiphon.language import AlgoSpec, AllGather, Buffer, CollectiveProgram, MemoryChannel, PortChannel, Rank

__all__ = ["allgather_multi_nodes"]


def allgather_multi_nodes(spec: AlgoSpec) -> CollectiveProgram:
    """Allgather of one node or more.

    A rank sends its chunk to the others of its node and, over ports, to the rank at its place of every other node,
    which hands it on to the others of that one. Thread block 0 sends between nodes; then one works for each
    other rank of the node, and one for each other node. On one node ranks send within it alone.

    Raises ValueError for other collectives and protocols, for chunk factors other than 1, for ranks that do not fill nodes, and
    for a single rank.
    """
    node_count, per_node = nodes(spec, AllGather)
    with CollectiveProgram.from_spec(spec) as program:
        ranks = range(spec.world_size)
        # Scratch has a slot for each rank's chunk.
        scratch = [Buffer(rank, spec.world_size) for rank in ranks]
        for me in ranks:
            node, place = divmod(me, per_node)
            rank, mine = Rank(me), scratch[me]
            output = rank.get_output_buffer()
            own = run(output, me) if spec.in_place else run(rank.get_input_buffer(), 0)
            far = [other for other in range(node_count) if other != node]
            twins = [other * per_node + place for other in far]

            if not spec.in_place:
                rank.copy(run(output, me), own, tb=0)
            if twins:
                rank.copy_packets(run(mine, me), own, tb=0)
            for twin in twins:
                PortChannel(twin, me).read_put_packets(run(scratch[twin], me), run(mine, me), tb=0)

            others = [other for other in range(per_node) if other != place]
            for block, other in enumerate(others, 1):
                peer = node * per_node + other
                channel = MemoryChannel(peer, me)
                channel.put_packets(run(scratch[peer], me), own, tb=block)
                for twin in twins:
                    channel.read_put_packets(run(scratch[peer], twin), run(mine, twin), tb=block)
                for source in range(other, spec.world_size, per_node):
                    rank.unpack_packets(run(output, source), run(mine, source), tb=block)
            for block, twin in enumerate(twins, per_node):
                rank.unpack_packets(run(output, twin), run(mine, twin), tb=block)
    return program
