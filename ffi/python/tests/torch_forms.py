"""Cases of `torch_ranks.py`: forms in which calls are given their tensors, and what they are to do."""

import contextlib

import torch
import torch.distributed as dist
from torch_checks import same

from antiphon._torch_futures import Chain, Outcome


def forms(rank, world):
    """One tensor is as good as a list of one, and its numbers matter to nothing."""
    group, peer, total = dist.distributed_c10d._get_default_group(), 1 - rank, world * (world + 1) / 2
    for length in (1, 3, 2000):
        zero = torch.zeros(length)
        for call, expected in (
            (lambda x: group.allreduce(x), total), (lambda x: group.broadcast(x, 1), 2), (lambda x: group.reduce(x, _root(0)), None),
            (lambda x: group.reduce_scatter(x, [x + other for other in range(world)]), total + world * rank),
            (lambda x: group.scatter(x, [zero + 5, zero + 6] if rank == 0 else [], _root(0)), 5 + rank),
            (lambda x: group.send(x, peer) if rank == 0 else group.recv(x, peer), 1),
        ):  # fmt: skip
            work = call(x := torch.full((length,), rank + 1.0))
            work.wait()
            assert isinstance(work.result(), list)
            if expected is not None:
                same(x, [expected] * length)
            elif rank == 0:
                same(x, [total] * length)
        parts = [torch.zeros(length) for _ in range(world)]
        for call in (lambda x: group.allgather(parts, x), lambda x: group.gather(parts if rank == 0 else [], x, _root(0))):
            call(torch.full((length,), rank + 1.0)).wait()
            same(torch.stack(parts)[:, 0], [1, 2])
    of_a_call_whose_end_goes_wrong(group)


def _root(rank):
    options = dist.ReduceOptions()
    options.rootRank = rank
    return options


def of_a_call_whose_end_goes_wrong(group):
    """It fails, and the thread goes on to others."""
    told = []

    def boom():
        raise ValueError("boom")

    group._host._put(lambda _: None, boom, told.append)
    group._host.submit(lambda _: None, []).wait()
    assert str(told) == "[ValueError('boom')]"
    # Nor does anybody wait for ever because of who is told of the end first.
    outcome = Outcome(Chain())
    outcome.before_anybody(boom)
    with contextlib.suppress(ValueError):
        outcome.succeed([])
    assert outcome._going.acquire(timeout=0)
