"""Cases of `torch_ranks.py`: calls that are several of the library's."""

import torch
import torch.distributed as dist
from torch_checks import fails, same


def unequal(rank, world):
    """Each rank's tensor has a size of its own."""
    own = torch.arange(2.0 * (rank + 1)).reshape(rank + 1, 2) + 10 * rank
    every = [torch.arange(2.0 * (other + 1)).reshape(other + 1, 2) + 10 * other for other in range(world)]
    parts = [torch.zeros(other + 1, 2) for other in range(world)]
    dist.all_gather(parts, own)
    for part, expected in zip(parts, every):
        same(part, expected)
    # Neither need lie in order, and some may be empty.
    parts = [torch.zeros(2, other + 1).t() for other in range(world)]
    dist.all_gather(parts, own.t().contiguous().t())
    same(parts[1], every[1])
    parts = [torch.zeros(other) for other in range(world)]
    dist.all_gather(parts, torch.full((rank,), 2.0))
    same(torch.cat(parts), [2] * sum(range(world)))
    for op, expected in ((dist.ReduceOp.SUM, every[rank] * world), (dist.ReduceOp.MAX, every[rank])):
        out, given = torch.zeros(rank + 1, 2), [each.clone() for each in every]
        dist.reduce_scatter(out, given, op)
        same(out, expected)
        same(torch.cat(given), torch.cat(every))
    out = torch.zeros(rank + 1, dtype=torch.bool)
    dist.reduce_scatter(out, [torch.full((other + 1,), rank == 1) for other in range(world)])
    same(out, [True] * (rank + 1))
    fails("elements", lambda: dist.all_gather([torch.zeros(other + 2) for other in range(world)], torch.zeros(rank + 1)))
    fails("elements", lambda: dist.reduce_scatter(torch.zeros(1), [torch.zeros(other + 2) for other in range(world)]))
    fails("elements", lambda: dist.all_gather([torch.zeros(1)], torch.zeros(1)))
