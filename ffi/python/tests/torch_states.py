"""Cases of `torch_ranks.py`: what PyTorch saves of a program, gives to all ranks of it, compiles, and sees of it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_checks import fails, same


def states(rank, world):
    """It asks the group for what kinds of devices it has."""
    group = dist.new_group(backend="antiphon")
    of_names(group)
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


def of_names(group):
    """Some releases ask for a group's name, and what it is for, by attributes: those have what it was given."""
    called, purpose = group.getGroupName(), group.getGroupDesc()
    for name, describe in ((group.setGroupName, group.setGroupDesc), (group._set_group_name, group._set_group_desc)):
        name(f"named by {name}")
        describe(f"described by {describe}")
        assert group.group_name == group.getGroupName() == f"named by {name}"
        assert group.group_desc == group.getGroupDesc() == f"described by {describe}"
    # PyTorch finds it by the one that it knows.
    group.setGroupName(called)
    group.setGroupDesc(purpose)


def compiled(rank, world):
    """What is compiled may call the group by code of torch's own, and by itself."""
    if not hasattr(dist, "all_gather_single"):
        return
    networks = []
    for of in (lambda network: network, lambda network: torch.compile(network, backend="aot_eager")):
        torch.manual_seed(3)
        network = of(DistributedDataParallel(torch.nn.Linear(4, 2)))
        steps = torch.optim.SGD(network.parameters(), lr=0.1)
        for turn in range(3):
            steps.zero_grad()
            network(torch.full((2, 4), float(rank + turn))).square().sum().backward()
            steps.step()
        networks.append(network)
    for expected, parameter in zip(networks[0].parameters(), networks[1].parameters()):
        torch.testing.assert_close(parameter, expected)
    peer = 1 - rank

    def calls(x):
        y, z = x + 1, torch.zeros_like(x)
        dist.send(y, peer) if rank == 0 else dist.recv(z, peer)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, y, peer), dist.P2POp(dist.irecv, z, peer)]):
            work.wait()
        work = dist.all_reduce(z, async_op=True)
        y = y * 2
        work.wait()
        dist.broadcast(y, 0)
        dist.reduce(y, 1)
        return y, z

    for own in (1.0, 2.0):
        y, z = torch.compile(calls, backend="aot_eager")(torch.full((2,), own + rank))
        same(z, [2 * own + 3] * 2)
        if rank == 1:
            same(y, [2 * world * (own + 1)] * 2)


def profiled(rank, world):
    """A profiler sees each call until it is over, also where a thread makes it."""
    store = dist.distributed_c10d._get_default_store()
    x, parts = torch.ones(4), [torch.zeros(4) for _ in range(world)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        if rank == 0:
            work = dist.all_reduce(x, async_op=True)
            with torch.autograd.profiler.record_function("the other comes"):
                store.set("come", "now")
            work.wait()
        else:
            store.get("come")
            dist.all_reduce(x)
        dist.all_gather(parts, x)
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        dist.barrier()
        fails("BAND", lambda: dist.all_reduce(x, dist.ReduceOp.BAND))
    events = {event.name: event for event in seen.events()}
    calls = [name for name in events if name.startswith("antiphon:")]
    assert sorted(calls) == sorted(f"antiphon:{name}" for name in ["all_gather", "all_reduce", "barrier", ("send", "recv")[rank]])
    if rank == 0:
        assert events["antiphon:all_reduce"].time_range.end > events["the other comes"].time_range.start
    same(x, [float(world)] * 4)
