"""Ready-made algorithms, by name: functions for `jit.compile`, which return their program; and the default plans.

`allreduce_multi_nodes`, `allgather_multi_nodes` and `reducescatter_multi_nodes` are those of `antiphon.default_algos`. `DEFAULTS`
are the plans that `python -m antiphon install` writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.default_algos import allgather_multi_nodes, allreduce_multi_nodes, reducescatter_multi_nodes
from antiphon.language import (
    AlgoSpec,
    AllReduce,
    BufferType,
    CollectiveProgram,
    MemoryChannel,
    Rank,
    SwitchChannel,
    SyncType,
)

__all__ = [
    "DEFAULTS",
    "DefaultPlan",
    "allgather_multi_nodes",
    "allreduce_multi_nodes",
    "allreduce_nvls",
    "reducescatter_multi_nodes",
]


def allreduce_nvls(name: str, num_ranks: int) -> CollectiveProgram:
    """Allreduce in place through the switch of a node: every rank loads the sum of its slice and stores it to all."""
    with CollectiveProgram(name, AllReduce(num_ranks, 1, True), num_ranks) as program:
        switch = SwitchChannel(list(range(num_ranks)), BufferType.input)
        ranks = range(num_ranks)
        channels = {rank: [MemoryChannel(peer, rank) for peer in ranks if peer != rank] for rank in ranks}
        for rank in ranks:
            own = Rank(rank).get_input_buffer()[rank : rank + 1]
            # All inputs must be there before any is loaded, and all sums before any rank goes on.
            for channel in channels[rank]:
                channel.signal(tb=0, data_sync=SyncType.none, relaxed=True)
            for channel in channels[rank]:
                channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
            switch.at_rank(rank).reduce(rank, 1, own, tb=0)
            switch.at_rank(rank).broadcast(own, rank, 1, tb=0)
            for channel in channels[rank]:
                channel.signal(tb=0, data_sync=SyncType.before)
            for channel in channels[rank]:
                channel.wait(tb=0, data_sync=SyncType.after)
    return program


@dataclass(frozen=True)
class DefaultPlan:
    """A default plan: an allreduce in place over nodes of eight ranks, for some sizes. It serves no calls by itself."""

    spec: AlgoSpec
    """Its specification."""
    thread_block_group_size: int
    """Number of thread blocks that work for each other rank of a node."""

    def program(self) -> CollectiveProgram:
        """Its program."""
        return allreduce_multi_nodes(self.spec, self.thread_block_group_size)


def _default(nodes: int, sizes: str, least: int, most: int, group: int) -> DefaultPlan:
    ranks = 8 * nodes
    spec = AlgoSpec(
        name=f"allreduce_{nodes}nodes_{sizes}",
        collective=AllReduce(ranks, 1, True),
        nranks_per_node=8,
        world_size=ranks,
        in_place=True,
        instances=1,
        protocol="LL",
        auto_sync=False,
        reuse_resources=True,
        num_threads_per_block=1024,
        use_double_scratch_buffer=True,
        min_message_size=least,
        max_message_size=most,
        tags={"default": 1},
    )
    return DefaultPlan(spec, group)


_SMALL = ("1K_64K", 1 << 10, 64 << 10, 1)
_LARGE = ("128K_2M", 128 << 10, 2 << 20, 4)

DEFAULTS: dict[str, DefaultPlan] = {
    plan.spec.name: plan for plan in (_default(nodes, *sizes) for nodes in (2, 4) for sizes in (_SMALL, _LARGE))
}
"""The default plans, by name."""
