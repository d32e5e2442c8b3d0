"""Cases of `torch_ranks.py`: groups that are parts of others."""

import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch_checks import fails, same

from antiphon.errors import InvalidArgumentError


def split(rank, world):
    """A split's parts call, and are split again, while the group goes on."""
    whole = dist.distributed_c10d._get_default_group()
    if not hasattr(ProcessGroup, "split_group"):
        assert not whole.supports_splitting
        return
    # In an order of its own.
    turned = list(range(world))[::-1]
    group = dist.split_group(split_ranks=[turned])
    assert (dist.get_rank(group), dist.get_process_group_ranks(group), dist.get_backend(group)) == (turned[rank], turned, "antiphon")
    parts = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(parts, torch.full((2,), float(rank)), group=group)
    same(torch.stack(parts)[:, 0], turned)
    dist.send(torch.ones(1), 1, group=group) if rank == 0 else dist.recv(parts[0][:1], 0, group=group) if rank == 1 else None
    # Parts meet at the same time, and each has calls of its own.
    own = [0, world - 1] if rank != 1 or world == 2 else [1]
    part = dist.split_group(split_ranks=[[0, world - 1], *([[1]] if world > 2 else [])], group_desc="halves")
    dist.all_reduce(x := torch.tensor([rank + 1.0]), group=part)
    same(x, [sum(own) + len(own)])
    by_name(part, len(own))
    # Of a part, and only some of its ranks.
    last = dist.split_group(part, [[0]], timeout=timedelta(seconds=30))
    if part.rank() == 0:
        dist.all_reduce(x, group=last)
        assert (last.rank(), last.size(), last._timeout) == (0, 1, 30)
    else:
        assert last is dist.GroupMember.NON_GROUP_MEMBER
    dist.destroy_process_group(part)
    fails("destroyed", lambda: part.allreduce([x]))
    dist.all_reduce(x := torch.ones(1))
    same(x, [world])
    by_itself(whole, rank, world)


def by_name(group, ranks):
    """PyTorch finds it by its name, and the log calls it by that."""
    import torch.distributed._functional_collectives as functional

    same(functional.all_reduce(torch.ones(1), "sum", group) + 0, [ranks])
    assert group.group_desc == "halves" and group._host._meeting.made.name == f"group {group.group_name}"


def by_itself(group, rank, world):
    """What PyTorch's function does not do for the group's own method."""
    for ranks in ([0, 0], [0, world], [-1]):
        fails("allowed each of them once at most", lambda: group.split_group(ranks), InvalidArgumentError)  # noqa: B023
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        parts = [group.split_group([0, 1], opts=3), group.split_group([rank])]
    assert any("pg_options, int, change nothing" in str(each.message) for each in said) == (rank < 2)
    assert (parts[0] is None) == (rank > 1) and parts[1].getGroupName().endswith(":split:4"), parts[1].getGroupName()
    for part, total in zip(parts, (2, 1)):
        if part is not None:
            part.allreduce([x := torch.ones(1)]).wait()
            same(x, [total])
    # PyTorch would make new groups by a split if it could where a device is bound.
    group.bound_device_id = torch.device("cuda", 0)
    fails("does not support splitting", lambda: dist.split_group(split_ranks=[[0]]))
    few = dist.new_group([0], backend="antiphon")
    assert (few is dist.GroupMember.NON_GROUP_MEMBER) == (rank > 0)
    group.bound_device_id = None
