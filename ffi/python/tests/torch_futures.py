"""Cases of `torch_ranks.py`: what futures call when they are done."""

import atexit
import contextlib
import gc
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.nn.parallel import DistributedDataParallel
from torch_checks import fails, same


def callbacks(rank, world):
    """They make calls of the group, and wait for them."""
    x = torch.ones(2)

    def again(future):
        (y,) = dist.all_reduce(future.value()[0], async_op=True).get_future().wait()
        dist.all_reduce(y)
        return dist.all_reduce(y, async_op=True).get_future().then(lambda future: future.value()[0]).wait()

    with not_yet():
        future = asked(x).then(again)
    same(future.wait(), [world**4] * 2)
    # In order, though the first takes long.
    told = []

    def tell(number):
        time.sleep(0 if number else 2)
        told.append(number)

    with not_yet():
        futures = [asked(torch.ones(1)).then(lambda _, number=number: tell(number)) for number in range(50)]
    torch.futures.collect_all(futures).wait()
    assert told == list(range(50)), told
    group = dist.distributed_c10d._get_default_group()
    # Who is to make a call can wait for none.
    ahead = group._host.submit(lambda _: group.allreduce([x]).wait(), None)
    fails("cannot wait for a call: saw thread 'antiphon collectives'", lambda: ahead)
    dist.barrier()


@contextlib.contextmanager
def not_yet():
    """In it no call of the group is made: of one that is done futures call at once, in the thread that asks."""
    go = threading.Event()
    held = dist.distributed_c10d._get_default_group()._host.submit(lambda _: go.wait(60), None)
    try:
        yield
    finally:
        go.set()
    held.wait()


def asked(x):
    """The future of an allreduce."""
    return dist.all_reduce(x, async_op=True).get_future()


def last(rank, world):
    """A program that ends while a future calls, which returns first. It may end by an exception."""
    begun, late = threading.Event(), threading.Event()
    # Of what is called as the interpreter ends, this comes before what the backend does.
    atexit.register(late.set)

    def tell(future):
        begun.set()
        late.wait(60)
        # Others go on meanwhile.
        for _ in range(3):
            time.sleep(0.002)
        print("called", flush=True)

    with not_yet():
        asked(torch.ones(2)).then(tell)
    assert begun.wait(60)
    if os.environ.get("RAISES"):
        raise ValueError("boom")


def hooks(rank, world):
    """PyTorch's own hook whose callbacks wait for calls."""
    torch.manual_seed(3)
    network = DistributedDataParallel(torch.nn.Linear(64, 64, bias=False))
    network.register_comm_hook(power.PowerSGDState(None, start_powerSGD_iter=2), power.powerSGD_hook)
    for step in range(5):
        network(torch.full((4, 64), float(rank + step))).pow(2).mean().backward()
    gradient = network.module.weight.grad
    every = [torch.zeros_like(gradient) for _ in range(world)]
    dist.all_gather(every, gradient)
    for other in every:
        same(other, gradient)


def joined(rank, world):
    """Works that PyTorch's own code keeps, and asks for more once it has waited, as DistributedDataParallel does where ranks have
    inputs of several lengths."""
    network = DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    with network.join(divide_by_initial_world_size=False):
        for step in range(3 + rank):
            network.zero_grad()
            sum_ = network(torch.ones(2, 4)).sum()
            if step == 2:
                # The call is over.
                time.sleep(0.2)
            gc.collect()
            sum_.backward()
            same(network.module.weight.grad, torch.full((1, 4), 2.0))
    # Nothing else is kept: of large results none that was waited for, and few others.
    group, seen = dist.distributed_c10d._get_default_group(), []
    for turn in range(20):
        # A part of a large one, too, and what keeps a graph.
        x = [torch.ones(2000), torch.ones(2000)[:5], torch.ones(5, requires_grad=True) * 2][turn % 3]
        with torch.no_grad():
            work = group.allreduce([x])
        seen.append(weakref.ref(x))
        if turn >= 10:
            work.wait()
    dist.barrier()
    del work, x
    gc.collect()
    gone = [each() is None for each in seen]
    assert gone == [True] * 7 + [False] * 3 + [True] * 10, gone
