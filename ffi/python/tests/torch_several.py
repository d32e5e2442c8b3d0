"""Cases of `torch_ranks.py`: calls that are several of the library's."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
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


def sparse(rank, world):
    """Sparse tensors are added, each with as many numbers as its rank has; a later call has what an earlier one made of them."""
    x = torch.sparse_coo_tensor([[0, rank, 3], [1, 1, 0]], [[1.0, 2.0]] * 3, (4, 2, 2))
    expected = sum(torch.sparse_coo_tensor([[0, other, 3], [1, 1, 0]], [[1.0, 2.0]] * 3, (4, 2, 2)).to_dense() for other in range(world))
    works = [dist.all_reduce(x, async_op=True), dist.all_reduce(x, async_op=True)]
    for work in works:
        work.wait()
    same(x.to_dense(), expected * world)
    assert not x.is_inference() and x._indices().shape == (2, len(expected.sum(2).nonzero()))
    x = torch.sparse_coo_tensor([[rank]], [3.0], (4,)) if rank else torch.sparse_coo_tensor((4,))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x.to_dense(), torch.tensor([0.0] + [3.0 / world] * (world - 1) + [0.0] * (4 - world)))
    none = torch.sparse_coo_tensor((4,))
    dist.all_reduce(none)
    assert none._nnz() == 0
    with torch.inference_mode():
        x = torch.eye(2).to_sparse()
        dist.all_reduce(x)
    same(x.to_dense(), torch.eye(2) * world)
    fails("a sparse tensor by MAX: allowed SUM and AVG", lambda: dist.all_reduce(none, dist.ReduceOp.MAX))
    fails("a sparse tensor of torch.int64 by AVG", lambda: dist.all_reduce(torch.eye(2).long().to_sparse(), dist.ReduceOp.AVG))
    fails("dense", lambda: dist.all_reduce(torch.eye(2).to_sparse_csr()))
    # What a table that gives sparse gradients has learned.
    torch.manual_seed(5)
    network = DistributedDataParallel(torch.nn.Embedding(6, 2, sparse=True))
    steps = torch.optim.SGD(network.parameters(), lr=1)
    before = network.module.weight.detach().clone()
    for _ in range(2):
        steps.zero_grad()
        network(torch.tensor([rank, 5])).sum().backward()
        steps.step()
    moved = torch.zeros(6, 2)
    moved[:world], moved[5] = 2.0 / world, 2.0
    torch.testing.assert_close(network.module.weight, before - moved)
