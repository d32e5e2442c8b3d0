"""Cases of `torch_ranks.py`: forms in which calls are given their tensors, and what they are to do."""

import contextlib
from datetime import timedelta

import torch
import torch.distributed as dist
from torch_checks import fails, same

from antiphon._torch_futures import Chain, Outcome
from antiphon.errors import TimedOutError, UnsupportedError


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
    by_names(group, rank, world)
    of_a_call_whose_end_goes_wrong(group)


def _root(rank):
    options = dist.ReduceOptions()
    options.rootRank = rank
    return options


def by_names(group, rank, world):
    """What options say may be said by name, or some of it in their place."""
    own, both, most = torch.full((2,), rank + 1.0), [torch.zeros(2) for _ in range(world)], dist.ReduceOp.MAX
    for call, expected in (
        (lambda x: group.allreduce(x, op=most), [2, 2]), (lambda x: group.allreduce([x], most), [2, 2]),
        (lambda x: group.broadcast(x, root=1), [2, 2]), (lambda x: group.broadcast([x], 1), [2, 2]),
        (lambda x: group.reduce(x, root=1, op=most), [1, 2]), (lambda x: group.reduce(x, 1), [1, 3]),
        (lambda x: group.gather(both if rank == 1 else [], x, root=1), [1, 2]),
        (lambda x: group.scatter(x, [own + 5, own + 6] if rank == 1 else [], root=1), [7, 8]),
    ):  # fmt: skip
        call(x := own.clone()).wait()
        same(x, [expected[rank]] * 2)
    same(torch.stack(both)[:, 0], [1, 2] if rank == 1 else [0, 0])
    # Names count more than options, which say as much as before.
    options = dist.ReduceOptions()
    options.rootRank, options.reduceOp = 0, most
    group.reduce(x := own.clone(), options, root=1).wait()
    same(x, [[1, 2][rank]] * 2)
    brief = timedelta(seconds=0.2)
    options.timeout = brief
    if rank == 0:
        late = [
            group.allreduce(own.clone(), timeout=brief), group.broadcast(own.clone(), root=0, timeout=brief),
            group.reduce(own.clone(), options), group.gather([both], own, root=0, timeout=brief),
            group.scatter(own.clone(), both, root=0, timeout=brief), group.barrier(timeout=brief), group.barrier(brief),
        ]  # fmt: skip
        for work in late:
            fails("not complete within 0.2 s", lambda: work, TimedOutError)  # noqa: B023
        dist.send(own, 1)
    else:
        dist.recv(own, 0)
        group.allreduce(own.clone())
        group.broadcast(own.clone())
        group.reduce(own.clone(), options, timeout=timedelta(seconds=60)).wait()
        group.gather([], own)
        group.scatter(own.clone(), [], root=0)
        group.barrier()
        late = [group.barrier()]
    for work in late:
        work.wait(timedelta(seconds=60))


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


class Wrapper(torch.Tensor):
    """A tensor that has its numbers in another, as a DTensor does."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function.overloadpacket._qualified_op_name == "aten::detach":
            return cls(args[0].inner)
        raise AssertionError(f"somebody asked for {function}")


class Awaited(Wrapper):
    """One that PyTorch has promised: as its AsyncCollectiveTensor is."""

    def trigger_wait(self):
        return self.inner.add_(1)


def wrapped(rank, world):
    """Tensors that wrap others: what they have is used if they say when it is there, and else they are refused at once."""
    group, peer = dist.distributed_c10d._get_default_group(), 1 - rank
    own, parts = torch.zeros(2), [torch.zeros(2) for _ in range(world)]
    bare = Wrapper(torch.zeros(2))
    for call in (
        lambda: group.allreduce([bare]), lambda: group.broadcast([bare]), lambda: group.allgather([parts], [bare]),
        lambda: group.allgather([[bare, *parts[1:]]], [own]), lambda: group.alltoall(parts, [bare, own]),
        lambda: group._allgather_base(torch.zeros(4), bare), lambda: group.allgather([[bare, torch.zeros(3)]], [torch.zeros(2 + rank)]),
        lambda: group.reduce_scatter([bare], [parts]), lambda: group.send([bare], peer), lambda: group.recv([bare], peer),
    ):  # fmt: skip
        try:
            call()
        except UnsupportedError as said:
            assert "cannot use a Wrapper, which has no memory" in str(said) and ".to_local()" in str(said), said
        else:
            raise AssertionError("it was not refused when it was made")
    # None of them was made.
    group.allreduce(x := Awaited(torch.full((2,), float(rank)))).wait()
    same(x.inner, [3, 3])
    group.allgather([parts], [Awaited(torch.full((2,), float(rank)))]).wait()
    same(torch.stack(parts), [[1, 1], [2, 2]])
    uneven = [torch.zeros(2), torch.zeros(3)]
    group.allgather([uneven], [Awaited(torch.zeros(2 + rank))]).wait()
    same(torch.cat(uneven), [1] * 5)
    group.send([Awaited(own)], peer).wait() if rank == 0 else group.recv([own], peer).wait()
    same(own, [1, 1])
    # No memory, and no elements either.
    group.allreduce([Wrapper(torch.zeros(0))]).wait()
    if hasattr(torch._C, "_get_accelerator"):
        of_later_releases(group, world)


def of_later_releases(group, world):
    """Those that PyTorch itself has."""
    import torch.distributed._functional_collectives as functional
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.all_reduce(x := functional.all_reduce(torch.ones(2), "sum", group))
    same(x + 0, [world**2] * 2)
    sharded = distribute_tensor(torch.ones(4), init_device_mesh("cpu", (world,)), [Shard(0)])
    fails("cannot use a DTensor, which has no memory", lambda: group.allreduce([sharded]), UnsupportedError)
    with FakeTensorMode():
        fake = torch.ones(2)
    fails("cannot use a FakeTensor, which has no memory", lambda: group.allreduce([fake]), UnsupportedError)
