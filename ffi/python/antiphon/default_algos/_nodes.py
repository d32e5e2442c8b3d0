"""Reads ranks and nodes from a spec, and refuses what the algorithms are not made for."""

from __future__ import annotations

from antiphon.language import AlgoSpec, BaseBuffer, Chunk, Collective

__all__ = ["groups", "nodes", "run"]


def nodes(spec: AlgoSpec, kind: type[Collective], *, in_place: bool = False, one: bool = True) -> tuple[int, int]:
    """The numbers of nodes and of ranks on each; ValueError if the algorithm is not for the spec. `one` allows a single
    node."""

    def refuse(saw: object, allowed: object) -> ValueError:
        return ValueError(f"cannot make {spec.name!r} over several nodes: saw {saw}, allowed {allowed}")

    collective, per_node = spec.collective, spec.nranks_per_node
    if not isinstance(collective, kind):
        raise refuse(f"collective {type(collective).__name__}", kind.__name__)
    if spec.protocol != "LL":
        raise refuse(f"protocol {spec.protocol!r}", "LL, since it moves packets")
    least = 2 if one else 2 * per_node
    if per_node < 1 or spec.world_size % per_node or spec.world_size < least:
        raise refuse(
            f"{spec.world_size} ranks, {per_node} of them on a node",
            f"{'one' if one else 'two'} or more nodes of equally many ranks, two or more in all",
        )
    if collective.num_ranks != spec.world_size:
        raise refuse(f"a collective of {collective.num_ranks} ranks", f"world_size, {spec.world_size}")
    if collective.chunk_factor != 1:
        raise refuse(f"chunk_factor {collective.chunk_factor}", 1)
    if spec.in_place != collective.inplace:
        raise refuse(f"in_place {spec.in_place} and a collective of inplace {collective.inplace}", "both alike")
    if in_place and not spec.in_place:
        raise refuse("a collective out of place", "one in place")
    return spec.world_size // per_node, per_node


def groups(spec: AlgoSpec, size: int) -> int:
    """The given number of thread blocks in a group; ValueError if it is less than 1."""
    if size < 1:
        raise ValueError(f"cannot make {spec.name!r}: saw thread_block_group_size {size}, allowed 1 or more")
    return size


def run(buffer: BaseBuffer, start: int, size: int = 1) -> Chunk:
    """`size` chunks of a buffer from chunk `start` on."""
    return buffer[start : start + size]
