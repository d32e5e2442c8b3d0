"""Cases of `torch_ranks.py`: what PyTorch saves of a program, gives to all ranks of it, and compiles."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_checks import same


def states(rank, world):
    """It asks the group for what kinds of devices it has."""
    group = dist.new_group(backend="antiphon")
    if not hasattr(dist.distributed_c10d, "_world"):
        return
    for each in (group, dist.distributed_c10d._get_default_group()):
        assert each._device_types == [torch.device("cpu"), torch.device("cuda")]
    dist.destroy_process_group(group)
    if not hasattr(dist.distributed_c10d, "_device_capability"):
        return
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    network = torch.nn.Linear(3, 2)
    whole = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)} if rank == 0 else {}
    set_model_state_dict(network, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    same(network.weight, torch.arange(6.0).reshape(2, 3))
    checkpoint.async_save(network.state_dict(), checkpoint_id="saved").result()
    dist.barrier()
    found = {"weight": torch.zeros(2, 3)}
    checkpoint.load(found, checkpoint_id="saved")
    same(found["weight"], torch.arange(6.0).reshape(2, 3))


def compiled(rank, world):
    """What is compiled may call the group by code of torch's own."""
    if not hasattr(dist, "all_gather_single"):
        return
    network = torch.compile(DistributedDataParallel(torch.nn.Linear(4, 1, bias=False)), backend="eager")
    for turn in range(3):
        network.zero_grad()
        network(torch.full((2, 4), float(rank + turn))).sum().backward()
        same(network.module.weight.grad, torch.full((1, 4), 2 * turn + world - 1.0))
