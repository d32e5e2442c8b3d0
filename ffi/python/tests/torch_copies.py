"""Cases of `torch_ranks.py`: tensors that calls copy, since they do not lie as the call needs them."""

import contextlib
import threading

import torch
import torch.distributed as dist
from torch_checks import fails, same

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
    for side in (Side(x), Parts([y])):
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


@contextlib.contextmanager
def held(group):
    """Calls are made that wait for their turn until all of them are."""
    go = threading.Event()
    group._host.submit(lambda _: go.wait(60), None)
    try:
        yield
    finally:
        go.set()
