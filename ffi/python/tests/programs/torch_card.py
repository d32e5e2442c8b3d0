"""Checks on a GPU, with a PyTorch that has CUDA: `torchrun --nproc_per_node 2 torch_card.py`. One GPU is enough for all ranks.

No test starts it: it needs a card. What it printed where it ran is in docs/measured/.
"""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import antiphon.torch  # noqa: F401: it registers the backend.

COUNT = 1000
STEPS = 20


def values(rank, count=COUNT):
    """What a rank brings: whole numbers, so that sums are exact."""
    return torch.arange(count, dtype=torch.float32, device="cuda") % 97 + rank


def collectives(rank, world):
    """Every collective that PyTorch calls with tensors, against what it must give."""
    each = [values(one) for one in range(world)]
    total = torch.stack(each).sum(0)
    x = values(rank)
    dist.all_reduce(x)
    assert torch.equal(x, total), "all_reduce"
    x = values(rank)
    work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    assert torch.equal(x, each[-1]), "all_reduce, max, asynchronous"
    x = values(rank)
    dist.broadcast(x, 1)
    assert torch.equal(x, each[1]), "broadcast"
    x = torch.empty(world * COUNT, device="cuda")
    dist.all_gather_into_tensor(x, values(rank))
    assert torch.equal(x, torch.cat(each)), "all_gather_into_tensor"
    x = torch.empty(COUNT, device="cuda")
    dist.reduce_scatter_tensor(x, torch.cat([values(rank) + part for part in range(world)]))
    assert torch.equal(x, total + world * rank), "reduce_scatter_tensor"
    x = torch.empty(world * COUNT, device="cuda")
    dist.all_to_all_single(x, torch.cat([values(rank) + 10 * part for part in range(world)]))
    assert torch.equal(x, torch.cat([one + 10 * rank for one in each])), "all_to_all_single"
    x = torch.empty(COUNT, device="cuda")
    if rank == 0:
        dist.send(values(5), 1)
    elif rank == 1:
        dist.recv(x, 0)
        assert torch.equal(x, values(5)), "send and recv"
    dist.barrier()


def graphs(rank, world):
    """A collective that a graph has gives in each replay what it gives when it is called."""
    total = torch.stack([values(one) for one in range(world)]).sum(0)
    x = values(rank)
    # A first call prepares what none in a graph may.
    dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    for replay in range(3):
        x.copy_(values(rank))
        graph.replay()
        assert torch.equal(x, total), f"all_reduce, replay {replay}"


def network():
    """A small network, with the same weights wherever it is made."""
    torch.manual_seed(7)
    layers = [torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)]
    return torch.nn.Sequential(*layers).cuda()


def trained(model, parts):
    """The weights after some steps with these parts of each batch, one after the other."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(11)
    for _ in range(STEPS):
        batch = torch.randn(2, 32, 8, generator=data).cuda()
        optimizer.zero_grad()
        for part in parts:
            loss = torch.nn.functional.mse_loss(model(batch[part]), batch[part].sum(1, keepdim=True))
            (loss / len(parts)).backward()
        optimizer.step()
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def training(rank, world):
    """DistributedDataParallel over the ranks comes to the weights of one process that has the whole batches."""
    alone = trained(network(), range(world))
    together = trained(DistributedDataParallel(network()), [rank])
    assert torch.allclose(alone, together, rtol=1e-4, atol=1e-6), (alone - together).abs().max()


def main():
    """Runs all checks as one rank of two."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("antiphon")
    rank, world = dist.get_rank(), dist.get_world_size()
    for check in (collectives, training, graphs):
        check(rank, world)
        dist.barrier()
        if rank == 0:
            print(f"{check.__name__}: ok", flush=True)
    if rank == 0:
        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
