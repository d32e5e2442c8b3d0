"""What each rank does of `test_torch.py`: run as `torch_ranks.py CASE`, over torch.distributed's own rendezvous."""

import atexit
import os
import resource
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

if sys.argv[1] == "raised":
    # Behind all that others do when the interpreter ends: it takes its time.
    atexit.register(lambda: (time.sleep(1), Path(f"{sys.argv[2]}-ended").touch()))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_alone import freed, made, told  # noqa: F401: cases, by their names.
from torch_checks import fails, same
from torch_copies import copies, lists  # noqa: F401
from torch_ends import again, dead, ended, forked, interrupted, left, monitored, raised, strangers  # noqa: F401
from torch_forms import forms, wrapped  # noqa: F401
from torch_futures import callbacks, hooks, joined, last  # noqa: F401
from torch_several import sparse, unequal  # noqa: F401
from torch_splits import split  # noqa: F401
from torch_states import compiled, profiled, states  # noqa: F401

import antiphon.torch  # noqa: F401: it registers the backend.


def collectives(rank, world):
    own = torch.arange(6.0) + 10 * rank
    every = [torch.arange(6.0) + 10 * other for other in range(world)]

    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int32, torch.int64):
        x = torch.ones(5, dtype=dtype) * (rank + 1)
        dist.all_reduce(x)
        same(x, [world * (world + 1) // 2] * 5)
    for op, expected in (
        (dist.ReduceOp.MAX, every[-1]), (dist.ReduceOp.MIN, every[0]), (dist.ReduceOp.PRODUCT, torch.stack(every).prod(0)),
    ):  # fmt: skip
        x = own.clone()
        dist.all_reduce(x, op)
        same(x, expected)
    flags = torch.tensor([rank == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.MIN)
    same(flags, [world == 1, True, False])
    turned = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(turned)
    same(turned, torch.arange(6.0).reshape(2, 3).t() * world)

    for root in range(world):
        x = own.clone()
        dist.broadcast(x, root)
        same(x, every[root])
        mixed = torch.full((3,), bool(rank == root))
        dist.broadcast(mixed, root)
        same(mixed, [True] * 3)
        x = own.clone()
        dist.reduce(x, root)
        same(x, sum(every) if rank == root else own)
        parts = [torch.zeros(6) for _ in range(world)] if rank == root else None
        dist.gather(own, parts, root)
        if rank == root:
            same(torch.stack(parts), torch.stack(every))
        part = torch.zeros(6)
        dist.scatter(part, [each + 1 for each in every] if rank == root else None, root)
        same(part, own + 1)
    objects = [{"rank": rank, "text": "a" * (rank + 1)}] * 1
    dist.broadcast_object_list(objects, 0)
    assert objects == [{"rank": 0, "text": "a"}]
    gathered = [None] * world
    dist.all_gather_object(gathered, ("rank", rank))
    assert gathered == [("rank", other) for other in range(world)]

    parts = [torch.zeros(2, 3) for _ in range(world)]
    dist.all_gather(parts, own.reshape(2, 3))
    same(torch.stack(parts).reshape(world, 6), torch.stack(every))
    group = dist.distributed_c10d._get_default_group()
    whole = torch.zeros(world * 6)
    group._allgather_base(whole, own).wait()
    same(whole, torch.cat(every))
    # By the names of later releases, where these have them.
    if hasattr(dist, "all_gather_single"):
        whole.zero_()
        dist.all_gather_single(whole, own)
        same(whole, torch.cat(every))
    if hasattr(dist, "gather_single"):
        whole.zero_()
        dist.gather_single(own, whole if rank == 0 else None, 0)
        same(whole, torch.cat(every) if rank == 0 else torch.zeros(world * 6))
    lists = [[torch.zeros(6), torch.zeros(1)] for _ in range(world)]
    dist.all_gather_coalesced(lists, [own, torch.tensor([float(rank)])])
    for other, (first, second) in enumerate(lists):
        same(first, every[other])
        same(second, [other])
    out = torch.zeros(6)
    dist.reduce_scatter(out, [own + other for other in range(world)])
    same(out, sum(every) + world * rank)
    group._reduce_scatter_base(out, torch.cat([own + other for other in range(world)])).wait()
    same(out, sum(every) + world * rank)

    out = torch.zeros(world * 2)
    dist.all_to_all_single(out, torch.arange(world * 2.0) + 100 * rank)
    same(out, torch.cat([torch.arange(2.0) + 2 * rank + 100 * other for other in range(world)]))
    counts = [rank + other + 1 for other in range(world)]
    for dtype in (torch.float32, torch.int16):
        out = torch.zeros(sum(counts), 2, dtype=dtype)
        dist.all_to_all_single(out, torch.full((sum(counts), 2), rank, dtype=dtype), counts, counts)
        same(out[:, 1], torch.cat([torch.full((counts[other],), other, dtype=dtype) for other in range(world)]))
    outs = [torch.zeros(rank + other + 1) for other in range(world)]
    dist.all_to_all(outs, [torch.full((rank + other + 1,), float(rank)) for other in range(world)])
    for other, part in enumerate(outs):
        same(part, [other] * (rank + other + 1))
    dist.barrier()


def transfers(rank, world):
    """In whatever order ranks send and receive."""
    others = [other for other in range(world) if other != rank]
    boxes = {other: torch.zeros(4) for other in others}
    works = [dist.irecv(boxes[other], other) for other in others]
    works += [dist.isend(torch.full((4,), 10.0 * rank + other), other) for other in others]
    for work in works:
        work.wait()
    for other, box in boxes.items():
        same(box, [10 * other + rank] * 4)
    # A work that receives says from whom.
    assert [work._source_rank() for work in works[: len(others)]] == others
    fails("recv", works[-1]._source_rank)
    # Tags tell transfers apart, whatever their order.
    peer = rank ^ 1
    first, second = torch.zeros(1), torch.zeros(1)
    if rank == 0:
        dist.send(torch.tensor([1.0]), peer, tag=1)
        dist.send(torch.tensor([2.0]), peer, tag=2)
    elif rank == 1:
        later = dist.irecv(second, peer, tag=2)
        dist.recv(first, peer, tag=1)
        later.wait()
        same(torch.cat([first, second]), [1, 2])
    if rank < 2:
        first_of_many_threads(rank, peer)
    dist.barrier()


def first_of_many_threads(rank, peer):
    """Threads that send by a new tag at the same time have one lane."""
    import antiphon.torch

    made, lane = [], antiphon.torch.Lane

    def slow(name, *more):
        made.append(name)
        # The others come meanwhile.
        time.sleep(0.1)
        return lane(name, *more)

    antiphon.torch.Lane = slow
    boxes, begin = [torch.zeros(1) for _ in range(4)], threading.Barrier(4)

    def transfer(box):
        begin.wait()
        dist.send(torch.ones(1), peer, tag=3) if rank == 0 else dist.recv(box, peer, tag=3)

    together = [threading.Thread(target=transfer, args=(box,)) for box in boxes]
    try:
        for thread in together:
            thread.start()
        for thread in together:
            thread.join(60)
    finally:
        antiphon.torch.Lane = lane
    same(torch.cat(boxes), [rank] * 4)
    assert made == [f"{'send to' if rank == 0 else 'receive from'} rank {peer} by tag 3"], made


def asynchronous(rank, world):
    sums = [torch.full((1000,), float(rank + number)) for number in range(20)]
    works = [dist.all_reduce(x, async_op=True) for x in sums]
    called = []
    told = works[3].get_future().then(lambda future: called.append(future.value()[0].sum().item()))
    for number, (work, x) in enumerate(zip(works, sums)):
        work.wait()
        assert work.is_completed()
        same(x, [number * world + sum(range(world))] * 1000)
    told.wait()
    # Of one that is not done it is waited for: the other rank sends when the first has asked.
    box, asked = torch.zeros(1), threading.Event()
    if rank == 0:
        work = dist.irecv(box, 1)
        assert not work.is_completed()
        asking = threading.Thread(target=lambda: (asked.set(), same(work.result()[0], [1]), called.append("result")))
        asking.start()
        asked.wait()
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(1), 0)
    if rank == 0:
        asking.join(60)
        assert called.pop() == "result"
    dist.barrier()
    assert called == [(3 * world + sum(range(world))) * 1000.0], called
    from antiphon import CommGroup

    half = dist.new_group([0, 1], backend="antiphon")
    if rank < 2:
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=half)
        same(x, [1])
        group = CommGroup(torch_group=half)
        assert (group.my_rank, group.nranks) == (rank, 2)
        x = group.communicator.all_reduce(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
        same(x, [2, 4])
    # A group of another backend, without the first rank.
    late = dist.new_group(list(range(1, world)), backend="gloo")
    if rank > 0:
        group = CommGroup(torch_group=late)
        assert (group.my_rank, group.nranks) == (rank - 1, world - 1)
        same(group.communicator.all_reduce(torch.tensor([float(rank)])), [sum(range(world))])


def refused(rank, world):
    from antiphon.errors import AntiphonError

    fails("allowed SUM", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.BAND))
    fails("cannot reduce tensors of torch.int16", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int16)))
    fails("dense", lambda: dist.broadcast(torch.eye(3).to_sparse(), 0))
    fails("elements", lambda: dist.all_gather([torch.zeros(3)] * world, torch.zeros(4)))
    fails("on meta", lambda: dist.all_reduce(torch.ones(3, device="meta")))
    # Rows are not torn, and none is left as it was.
    four, three = torch.zeros(4, 2), torch.zeros(3, 2)
    for out, given, outs, ins in (
        (four, three, None, None), (three, four, None, None), (four, four, [2, 2], [2, 1]), (four, four, [1, 2], [2, 2]),
        (four, four, [4], [4]), (four, four, [5, -1], [2, 2]), (four, four, [2, 2], [2, 2, 0]),
    ):  # fmt: skip
        fails("cannot divide a tensor of shape", lambda: dist.all_to_all_single(out, given, outs, ins))  # noqa: B023
    x = torch.tensor([1.0])
    dist.all_reduce(x)
    same(x, [world])
    # Each tag has descriptors of its own.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 12, limits[1]))
    try:
        fails(f"cannot send to rank {1 - rank} by tag 7: saw", lambda: dist.isend(x, 1 - rank, tag=7))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    works = [dist.isend(x, 1 - rank, tag=7), dist.irecv(y := torch.zeros(1), 1 - rank, tag=7)]
    for work in works:
        work.wait()
    same(y, x)
    # Ranks that call different things learn it when they wait, and from every call after.
    group = dist.new_group(backend="antiphon")
    for _ in range(2):
        fails("rank 0 called", lambda: dist.all_reduce(torch.ones(3 + rank), group=group))
    assert issubclass(AntiphonError, RuntimeError)


def kinds(rank, world):
    """Tensors of types that have none of ours, of no elements, and whose elements are not one behind the other."""
    flags = torch.tensor([rank == 0, False, True])
    for op, expected in ((dist.ReduceOp.SUM, [True, False, True]), (dist.ReduceOp.PRODUCT, [False, False, True])):
        x = flags.clone()
        dist.all_reduce(x, op)
        same(x, expected)
    group = dist.distributed_c10d._get_default_group()
    for dtype in (torch.complex64, torch.complex128):
        own = torch.tensor([1 + 2j, 3j]).to(dtype) * (rank + 1)
        x = own.clone()
        group.allreduce([x]).wait()
        same(x, torch.tensor([1 + 2j, 3j]).to(dtype) * 3)
        out = torch.zeros(2, dtype=dtype)
        dist.reduce_scatter(out, [own, own])
        same(out, torch.tensor([1 + 2j, 3j]).to(dtype) * 3)
        out = torch.zeros(4, dtype=dtype)
        dist.all_to_all_single(out, torch.cat([own, own]))
        same(out, torch.tensor([1 + 2j, 3j, 2 + 4j, 6j]).to(dtype))
    # What is conjugated, or negated, by a mark alone.
    own = torch.tensor([1 + 2j, 3j]) * (rank + 1)
    x = own.conj() if rank == 1 else own
    group.broadcast([x], _root(1)).wait()
    same(x.resolve_conj(), [2 - 4j, -6j])
    if rank == 0:
        own.mul_(2)
    group.broadcast([x], _root(0)).wait()
    same(x.resolve_conj(), [4 - 8j, -12j])
    same(own, [4 + 8j, 12j] if rank == 1 else [4 - 8j, -12j])
    x = torch._neg_view(torch.arange(3.0)) if rank == 1 else torch.arange(3.0)
    dist.all_reduce(x)
    same(x.resolve_neg(), [0, 0, 0])
    none = torch.zeros(0)
    dist.all_reduce(none)
    dist.broadcast(none, 1)
    dist.all_gather([torch.zeros(0) for _ in range(world)], none)
    dist.all_to_all_single(torch.zeros(0), none)
    dist.send(none, 1) if rank == 0 else dist.recv(none, 0)
    turned = torch.arange(8.0).reshape(2, 4).t() + 100 * rank
    out = torch.zeros(2, 4).t()
    dist.all_to_all_single(out, turned)
    same(out, torch.cat([(torch.arange(8.0).reshape(2, 4).t() + 100 * other)[2 * rank : 2 * rank + 2] for other in range(world)]))
    parts = [torch.zeros(2, 4).t() for _ in range(world)]
    dist.all_gather(parts, turned)
    same(parts[1], torch.arange(8.0).reshape(2, 4).t() + 100)
    box = torch.zeros(4, 4)[:, ::2]
    dist.send(turned, 1) if rank == 0 else dist.recv(box, 0)
    same(box, torch.zeros(4, 2) if rank == 0 else torch.arange(8.0).reshape(2, 4).t())
    for op in ("BAND", "BOR", "BXOR"):
        fails(f"reduce by {op}", lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), getattr(dist.ReduceOp, op)))
    fails("torch.complex64 by PRODUCT", lambda: group.reduce_scatter([out + 0j], [[out + 0j] * 2], _options(dist.ReduceOp.PRODUCT)))
    fails("torch.bool by AVG", lambda: dist.all_reduce(flags, dist.ReduceOp.AVG))


def _options(op):
    options = dist.ReduceScatterOptions()
    options.reduceOp = op
    return options


def limits(rank, world):
    """How long a call is waited for."""
    group = dist.new_group(backend="antiphon", timeout=timedelta(seconds=5))
    if rank == 0:
        work = dist.all_reduce(x := torch.ones(2), async_op=True)
        fails("not complete within 0.05 s, and goes on", lambda: work.wait(timedelta(seconds=0.05)))
        assert not work.is_completed()
        dist.send(torch.ones(1), 1)
        assert work.wait(timedelta(seconds=100)) and work.wait()
        # To who does not receive: the group's limit.
        fails("cannot send to rank 1 by tag 0: not both ranks had begun within 5 s", lambda: dist.isend(x, 1, group=group))
        never = "not both ranks had begun within 0.05 s"
        fails(f"cannot send to rank 1 by tag 1: {never}", lambda: _Brief(dist.isend(x, 1, tag=1, group=group)))
        fails(f"cannot receive from rank 1 by tag 3: {never}", lambda: _Brief(dist.irecv(x.clone(), 1, tag=3, group=group)))
        # All who wait for that one wait for it once.
        begun = time.monotonic()
        works = [dist.isend(x, 1, tag=2, group=group) for _ in range(8)]
        for work in works:
            fails("not both ranks had begun within 5 s", lambda: work)
        assert time.monotonic() - begun < 20 and all(work.exception() for work in works)
        fails("not both ranks had begun within 5 s", lambda: dist.isend(x, 1, tag=2, group=group))
        together_no_longer_than_one()
    else:
        dist.recv(torch.zeros(1), 0)
        dist.all_reduce(x := torch.ones(2))
        fails("allowed a rank", lambda: dist.irecv(x, group=group))
    same(x, [2, 2])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        group.set_timeout(timedelta(seconds=1))
    assert "stays what it was made with, 5 s" in str(told[0].message)


def together_no_longer_than_one():
    """What one wait takes for one thing is not had again for another."""
    from antiphon import _torch_futures, _torch_lanes, _torch_streams

    passed = [0.0]

    def takes(seconds, *, then_done):
        def meeting(limit):
            assert limit.seconds == 60
            passed[0] += seconds
            if then_done:
                outcome.succeed(None)

        outcome = _torch_futures.Outcome(_torch_futures.Chain())
        work = _torch_lanes.HostWork(outcome)
        work.meeting = meeting
        return work

    _torch_streams.time = SimpleNamespace(monotonic=lambda: passed[0])
    try:
        done, undone = takes(30, then_done=True), takes(29.95, then_done=False)
        begun = time.monotonic()
        fails("not complete within 60 s", lambda: _Brief(_torch_lanes.SeveralWorks([done, undone]), 60))
        assert time.monotonic() - begun < 20
    finally:
        _torch_streams.time = time


class _Brief:
    """A work that is waited for a moment, or so many seconds."""

    def __init__(self, work, seconds=0.05):
        self.work, self.limit = work, timedelta(seconds=seconds)

    def wait(self):
        self.work.wait(self.limit)


def later(rank, world):
    """What later releases have."""
    group = dist.distributed_c10d._get_default_group()
    x = torch.zeros(2)
    peer = 1 - rank
    ops = [dist.P2POp(dist.irecv, x, peer), dist.P2POp(dist.isend, torch.full((2,), float(rank)), peer)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(x, [peer, peer])
    # Calls that are waited for together.
    group._start_coalescing(torch.device("cpu"))
    sums = [torch.full((2,), float(rank + turn)) for turn in range(3)]
    for each in sums:
        group.allreduce([each])
    # Of this thread alone.
    other = threading.Thread(target=lambda: group.allreduce([torch.ones(1)]).wait())
    other.start()
    other.join()
    group.broadcast([x], _root(1))
    works = group._end_coalescing(torch.device("cpu"))
    assert len(works._works) == 4
    assert works.wait() and works.is_success() and works.exception() is None
    works.get_future().wait()
    same(torch.stack(sums), [[1, 1], [3, 3], [5, 5]])
    same(x, [0, 0])
    # One that is refused is the end of it.
    group._start_coalescing(torch.device("cpu"))
    fails("torch.int16", lambda: group.allreduce([torch.ones(2, dtype=torch.int16)]))
    group.allreduce([x]).wait()
    assert group._end_coalescing(torch.device("cpu"))._works == []
    each = [torch.full((2,), float(rank)), torch.full((3,), float(rank))]
    outs = [torch.zeros(4), torch.zeros(6)]
    group.allgather_into_tensor_coalesced(outs, each).wait()
    same(torch.cat(outs), [0, 0, 1, 1, 0, 0, 0, 1, 1, 1])
    group.reduce_scatter_tensor_coalesced(each, outs).wait()
    same(torch.cat(each), [2 * rank] * 5)
    if not hasattr(torch.Tensor, "full_tensor") and not hasattr(dist, "all_gather_single"):
        return
    import torch.distributed._functional_collectives as functional
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    same(functional.all_reduce(torch.ones(2) * (rank + 1), "sum", group) + 0, [3, 3])
    same(functional.all_gather_tensor(torch.ones(1) * rank, 0, group) + 0, [0, 1])
    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(8.0).reshape(4, 2)
    same(distribute_tensor(whole, mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local(), whole)
    with dist._coalescing_manager(group):
        sums = [torch.full((2,), float(rank + turn)) for turn in range(2)]
        for each in sums:
            dist.all_reduce(each)
    same(torch.stack(sums), [[1, 1], [3, 3]])
    # Sharded over both, the model comes to the weights of one process.
    alone, network = model(), model()
    train(alone, batches(world))
    fully_shard(network, mesh=mesh)
    own = slice(8 * rank, 8 * (rank + 1))
    train(network, ((inputs[own], targets[own]) for inputs, targets in batches(world)))
    for expected, parameter in zip(alone.parameters(), network.parameters()):
        torch.testing.assert_close(parameter.full_tensor(), expected)


def _root(rank):
    options = dist.BroadcastOptions()
    options.rootRank = rank
    return options


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))


def batches(world):
    generator = torch.Generator().manual_seed(11)
    for _ in range(10):
        inputs = torch.randn(8 * world, 8, generator=generator)
        yield inputs, inputs.sum(1, keepdim=True)


def train(network, part):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for inputs, targets in part:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def training(rank, world):
    """Two processes with half of each batch come to the weights of one process with all of it."""
    alone = model()
    train(alone, batches(world))
    network = model()
    if rank:
        # What DistributedDataParallel must replace by rank 0's.
        torch.nn.init.zeros_(network[0].weight)
    together = DistributedDataParallel(network)
    own = slice(8 * rank, 8 * (rank + 1))
    losses = train(together, ((inputs[own], targets[own]) for inputs, targets in batches(world)))
    assert losses[-1] < losses[0]
    for expected, parameter in zip(alone.parameters(), together.module.parameters()):
        torch.testing.assert_close(parameter, expected)
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in together.parameters()])
    every = [torch.zeros_like(flat) for _ in range(world)]
    dist.all_gather(every, flat)
    for other in every:
        same(other, flat)


def main():
    case, file = sys.argv[1:]
    rank, world = (int(os.environ[name]) for name in ("ANTIPHON_RANK", "ANTIPHON_WORLD"))
    torch.set_num_threads(1)
    if os.environ.get("NODES"):
        os.environ["ANTIPHON_HOSTID"] = f"node {rank * int(os.environ['NODES']) // world}"
    dist.init_process_group("antiphon", init_method=f"file://{file}", rank=rank, world_size=world)
    globals()[case](rank, world)
    dist.barrier()
    dist.destroy_process_group()
    print(f"{case}: ok")


main()
