"""Algorithms that are ready, by name: functions for `jit.compile`, which return their program."""

from __future__ import annotations

from antiphon.language import AllReduce, BufferType, CollectiveProgram, MemoryChannel, Rank, SwitchChannel, SyncType

__all__ = ["allreduce_nvls"]


def allreduce_nvls(name: str, num_ranks: int) -> CollectiveProgram:
    """Allreduce in place through the switch of a node: every rank loads the sum of its slice and stores it to all."""
    with CollectiveProgram(name, AllReduce(num_ranks, 1, True), num_ranks) as program:
        switch = SwitchChannel(list(range(num_ranks)), BufferType.input)
        ranks = range(num_ranks)
        channels = {rank: [MemoryChannel(peer, rank) for peer in ranks if peer != rank] for rank in ranks}
        for rank in ranks:
            own = Rank(rank).get_input_buffer()[rank : rank + 1]
            # All inputs are there before any is loaded, and all sums before any rank goes on.
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
