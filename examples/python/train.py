"""Data-parallel training on the CPU, over the backend of torch.distributed: `torchrun --nproc_per_node 2 train.py`."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import antiphon.torch  # noqa: F401: it registers the backend.

dist.init_process_group("antiphon")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
network = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
data = torch.Generator().manual_seed(rank)
for step in range(100):
    inputs = torch.randn(32, 8, generator=data)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(network(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
print(f"rank {rank} of {world}: loss {loss.item():.3f}")
dist.destroy_process_group()
