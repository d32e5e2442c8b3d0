"""Cases of `torch_ranks.py`: what PyTorch saves, and gives to all ranks, of a program's state."""

import torch
import torch.distributed as dist
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
