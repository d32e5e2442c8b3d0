"""Cases of `torch_ranks.py`: tensors that calls copy, since they do not lie as the call needs them."""

import contextlib
import threading

import torch
import torch.distributed as dist
from torch_checks import fails, same

from antiphon import _torch_sides
from antiphon._torch_sides import Parts, Side
from antiphon.errors import AntiphonError


def copies(rank, world):
    """They have the numbers that they have when the call's turn comes."""
    with_all_made_before_the_first(rank, world)
    with torch.inference_mode():
        with_all_made_before_the_first(rank, world)
    of_calls_that_fail()
    of_odd_addresses(rank, world)
    group, mixed = dist.distributed_c10d._get_default_group(), [torch.ones(1), torch.ones(1).long()]
    fails("cannot join 2 tensors of torch.float32, torch.int64", lambda: group.alltoall([torch.zeros(1)] * 2, mixed))
    fails("dense", lambda: dist.all_gather([torch.eye(3).to_sparse()] * world, torch.ones(3, 3)))
    fails("dense", lambda: group.alltoall([torch.eye(3).to_sparse()] * world, list(torch.ones(9 * world).chunk(world))))


def with_all_made_before_the_first(rank, world):
    group = dist.distributed_c10d._get_default_group()
    x, y = torch.ones(3, 2).t(), torch.ones(2)
    z = torch.tensor([1 + 2j, 3j]).conj()
    lists = [torch.zeros(2) for _ in range(world)]
    scattered, gathered, exchanged = torch.zeros(2), torch.zeros(world, 2), [torch.zeros(2) for _ in range(world)]
    apart, wide = torch.zeros(world * 2, 2)[:, 0], torch.ones(6, 2)[:, 0]
    with held(group):
        works = [group.allreduce([x]), group.allreduce([x])]
        works += [group.allreduce([z]), group.allreduce([z])]
        works += [group.allreduce([y]), group.reduce_scatter([scattered], [[y] * world])]
        works.append(group.allgather([lists], [scattered]))
        works.append(group.allreduce([lists[1]]))
        works.append(group.alltoall(exchanged, lists))
        works.append(group._allgather_base(gathered, y.expand(1, 2)))
        works.append(group._allgather_base(apart, gathered[0]))
        works.append(group.allreduce_coalesced([wide, wide]))
        # What is only read may lie on itself.
        works.append(group._allgather_base(spread := torch.zeros(world * 4), y[:1].expand(4)))
    for work in works:
        work.wait()
    same(x, torch.full((2, 3), float(world**2)))
    same(z.resolve_conj(), torch.tensor([1 - 2j, -3j]) * world**2)
    same(scattered, [world**2] * 2)
    same(torch.stack(exchanged), [[world ** (3 if rank == 1 else 2)] * 2] * world)
    same(gathered, [[world] * 2] * world)
    same(apart, [world] * 2 * world)
    same(wide, [world**2] * 6)
    same(spread, [world] * 4 * world)


def of_calls_that_fail():
    """They are not copied back: nothing was received."""
    x, y = torch.ones(3, 2).t(), torch.ones(2)
    for side in (Side(x), Parts([y], beside=[y])):
        with contextlib.suppress(AntiphonError), side:
            side.tensor.fill_(2)
            raise AntiphonError("cannot receive")
    same(x, torch.ones(2, 3))
    same(y, [1, 1])


def of_odd_addresses(rank, world):
    """Elements that lie where their size does not divide the address."""

    def odd(*numbers):
        tensor = torch.frombuffer(bytearray(45), dtype=torch.float32, offset=1, count=len(numbers))
        return tensor.copy_(torch.tensor(numbers))

    x = odd(1.0 + rank, 2.0)
    dist.all_reduce(x)
    same(x, [sum(range(1, world + 1)), 2 * world])
    dist.broadcast(y := odd(float(rank), 5.0), 1)
    same(y, [1, 5])
    parts = [odd(0.0, 0.0) for _ in range(world)]
    dist.all_gather(parts, odd(float(rank), 1.0))
    same(torch.stack(parts), [[other, 1] for other in range(world)])
    dist.send(odd(3.0), 1) if rank == 0 else dist.recv(z := odd(0.0), 0)
    same(z if rank == 1 else odd(3.0), [3])


def lists(rank, world):
    """Lists of tensors that lie one behind the other are used as they are, and those that do not quite are copied."""
    for made in (
        lambda: list(torch.zeros(2 * world).chunk(world)), lambda: list(torch.zeros(2 * world + 3)[1:-2].chunk(world)),
        lambda: [part.t() for part in torch.zeros(world, 1, 2)],
    ):  # fmt: skip
        assert copied_in(made, rank, world) == 0
        with torch.inference_mode():
            assert copied_in(made, rank, world) == 0
            parts = made()
        dist.all_gather(parts, torch.full((2,), float(rank)))
        same(torch.stack(parts).flatten(), [other for other in range(world) for _ in range(2)])
    for made in (
        # With a gap, in another order, each alone, and each with a gap in itself.
        lambda: [part[:2] for part in torch.zeros(3 * world).chunk(world)], lambda: list(torch.zeros(2 * world).chunk(world))[::-1],
        lambda: [torch.zeros(2) for _ in range(world)], lambda: [part[::2] for part in torch.zeros(4 * world).chunk(world)],
    ):  # fmt: skip
        assert copied_in(made, rank, world) > 0
        in_place(made, rank, world)
    in_place(lambda: list(torch.zeros(2 * world).chunk(world)), rank, world)
    # Of several lengths, and none.
    counts, others = [rank + other for other in range(world)], range(world)
    outs, given = torch.zeros(sum(counts)), torch.full((sum(counts),), float(rank))
    with copies_counted() as copied:
        dist.all_to_all(list(outs.split(counts)), list(given.split(counts)))
    same(outs, [other for other in others for _ in range(rank + other)])
    assert not copied
    # One tensor again and again, and two lists that lie upon each other, one of them a little later.
    dist.reduce_scatter(out := torch.zeros(2), [torch.full((2,), 1.0 + rank)] * world)
    same(out, [sum(range(1, world + 1))] * 2)
    both = torch.arange(2.0 * world + 1) + 100 * rank
    dist.all_to_all(list(both[:-1].chunk(world)), list(both[1:].chunk(world)))
    same(both[:-1], [100 * other + 2 * rank + turn for other in others for turn in (1, 2)])
    # What merely is of the same allocation lies nowhere in it.
    both = torch.zeros(2 * world + 2)
    with copies_counted() as copied:
        both[-2:] = rank
        dist.all_gather(list(both[:-2].chunk(world)), both[-2:])
    same(both[:-2], [other for other in others for _ in range(2)])
    assert not copied
    # Memory that two tensors have of somebody else's.
    memory = bytearray(8 * world)
    parts, own = (torch.frombuffer(memory, dtype=torch.float32) for _ in range(2))
    parts.fill_(rank)
    side = Parts(list(parts.chunk(world)), beside=[own[:2]])
    assert side.parts and side.tensor.data_ptr() != parts.data_ptr()
    side = Parts(list(parts.chunk(world)), beside=[torch.zeros(2)])
    assert not side.parts and side.tensor.data_ptr() == parts.data_ptr() and side.tensor.numel() == 2 * world


def filled(parts, rank):
    """Numbers for each rank."""
    for other, part in enumerate(parts):
        part.copy_((torch.arange(2.0) + 10 * other + 100 * rank).view(part.shape))
    return parts


def numbers(parts):
    return torch.stack([part.reshape(2) for part in parts])


def copied_in(made, rank, world):
    """How much is copied in all calls that take lists."""
    every = torch.stack([torch.arange(2.0) + 10 * rank + 100 * other for other in range(world)])
    with copies_counted() as copied:
        dist.all_gather(parts := made(), torch.arange(2.0) + rank)
        same(numbers(parts), [[other, other + 1] for other in range(world)])
        dist.reduce_scatter(out := torch.zeros(2), given := filled(made(), rank))
        same(out, every.sum(0))
        same(numbers(given), numbers(filled(made(), rank)))
        for root in range(world):
            dist.gather(torch.arange(2.0) + rank, (parts := made()) if rank == root else None, root)
            if rank == root:
                same(numbers(parts), [[other, other + 1] for other in range(world)])
            dist.scatter(out, filled(made(), rank) if rank == root else None, root)
            same(out, every[root])
        dist.all_to_all(parts := made(), filled(made(), rank))
        same(numbers(parts), every)
    return len(copied)


def in_place(made, rank, world):
    """The call's other tensor is one of the list."""
    every = torch.stack([torch.arange(2.0) + 10 * rank + 100 * other for other in range(world)])
    parts = filled(made(), rank)
    dist.all_gather(parts, parts[rank])
    same(numbers(parts), [[110 * other, 110 * other + 1] for other in range(world)])
    parts = filled(made(), rank)
    dist.reduce_scatter(parts[rank], parts)
    expected = numbers(filled(made(), rank))
    expected[rank] = every.sum(0)
    same(numbers(parts), expected)
    for root in range(world):
        parts = filled(made(), rank)
        dist.gather(parts[0], parts if rank == root else None, root)
        if rank == root:
            same(numbers(parts), [[100 * other, 100 * other + 1] for other in range(world)])
        parts = filled(made(), rank)
        dist.scatter(parts[0], parts if rank == root else None, root)
        same(parts[0], every[root])
        same(numbers(parts[1:]), numbers(filled(made(), rank)[1:]))
    parts = filled(made(), rank)
    dist.all_to_all(parts, parts)
    same(numbers(parts), every)


@contextlib.contextmanager
def copies_counted():
    """What is copied meanwhile, for all calls."""
    copy, made = _torch_sides.copy, []
    _torch_sides.copy = lambda source, target: (made.append(source), copy(source, target))
    try:
        yield made
    finally:
        _torch_sides.copy = copy


@contextlib.contextmanager
def held(group):
    """Calls are made that wait for their turn until all of them are."""
    go = threading.Event()
    group._host.submit(lambda _: go.wait(60), None)
    try:
        yield
    finally:
        go.set()
