"""Cases of `torch_ranks.py`: groups that end while calls hang, and who comes to a transfer's door."""

import contextlib
import os
import secrets
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_checks import fails, same

import antiphon.torch
from antiphon._torch_meeting import watch
from antiphon._torch_streams import Limit
from antiphon.errors import AntiphonError, PeerLostError, TimedOutError


def ended(rank, world):
    """Groups that were destroyed or aborted."""
    group = dist.new_group(backend="antiphon")
    dist.all_reduce(torch.ones(1), group=group)
    work = dist.all_reduce(x := torch.ones(1), group=group, async_op=True)
    group.shutdown()
    assert work.is_completed()
    same(x, [world])
    fails("destroyed", lambda: group.allreduce([torch.ones(1)]))
    # By a tag that is new, too.
    fails("destroyed", lambda: group.recv([torch.zeros(1)], 1 - rank, 9))
    group.shutdown()
    group.abort()
    fails("cannot make a call", lambda: group.allreduce([torch.ones(1)]))
    group = dist.new_group(backend="antiphon")
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        group.abort()
        fails("abort", lambda: work)
    # The other rank calls when the group is of no more use.
    dist.barrier()
    fails("abort", lambda: dist.all_reduce(torch.ones(1), group=group))
    # Transfers whose partner does not come.
    group = dist.new_group(backend="antiphon")
    dist.all_reduce(torch.ones(1), group=group)
    if rank == 0:
        works = [dist.irecv(torch.zeros(1), 1, group=group) for _ in range(2)]
        with nobody_meets_after():
            ends_by(group.abort, works, "was aborted")
        for tag in (0, 9):
            fails("was aborted", lambda: dist.irecv(torch.zeros(1), 1, group=group, tag=tag))
        group.shutdown()
    dist.barrier()
    group = dist.new_group(backend="antiphon")
    if rank == 0:
        works = [dist.isend(torch.zeros(1), 1, group=group, tag=tag) for tag in range(4)]
        with nobody_meets_after():
            several_end_together(group, works)
    dist.barrier()


def again(rank, world):
    """Groups one after the other over one store: the ranks that come first wait for the others, and find nothing of the one before."""
    store = dist.PrefixStore("again", dist.distributed_c10d._get_default_store())
    for turn in range(3):
        time.sleep(0.3 if rank == 0 and turn else 0)
        group = antiphon.torch._create(store, rank, world, timedelta(seconds=20))
        group.allreduce([x := torch.ones(1)]).wait()
        same(x, [world])
        group.shutdown()


def forked(rank, world):
    """A child that was forked makes no calls of its parent's groups, and is told what those are that were under way."""
    group, x = dist.distributed_c10d._get_default_group(), torch.ones(2)
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    go = threading.Event()
    held = group._host.submit(lambda _: go.wait(60), None)
    alone = dist.irecv(y := torch.zeros(2), 1 - rank, tag=3)
    child = os.fork()
    if child == 0:
        for call in (
            lambda: held, lambda: alone, lambda: dist.all_reduce(x), lambda: dist.isend(x, 1 - rank),
            lambda: dist.irecv(x, 1 - rank, tag=5), lambda: dist.barrier(), lambda: dist.new_group(backend="antiphon"),
        ):  # fmt: skip
            fails("made before a fork; start processes by spawn", call)
        group.shutdown()
        os._exit(0)
    go.set()
    assert os.waitpid(child, 0)[1] == 0
    dist.send(x, 1 - rank, tag=3)
    alone.wait()
    same(y, x)
    dist.all_reduce(x)
    same(x, [world] * 2)


def monitored(rank, world):
    """A barrier that says who has not come, and breaks nothing."""
    group = dist.distributed_c10d._get_default_group()
    for turn in range(world):
        if turn == rank:
            time.sleep(0.3)
            group._store.add(f"late {turn}", 1)
        group.monitored_barrier(timedelta(seconds=20), wait_all_ranks=True)
        assert group._store.add(f"late {turn}", 0) == 1
    brief = timedelta(seconds=0.5)
    if rank == 0:
        fails("rank 1 had not come within 0.5 s", lambda: group.monitored_barrier(brief), TimedOutError)
    dist.barrier()
    if rank == 1:
        fails("rank 0 said that not all ranks had come in time", lambda: group.monitored_barrier(brief), TimedOutError)
        fails("rank 0 had not come within 0.5 s", lambda: group.monitored_barrier(brief), TimedOutError)
    dist.barrier()
    # A third does not come. Who came before rank 0 is told what that says, later than its own limit.
    text, limit = ("rank 2 had not come within 3 s", 3) if rank == 0 else ("rank 0 said", 2)
    fails(text, lambda: watch(group._store, "third", rank, 3, Limit(limit), group._check), TimedOutError)
    dist.barrier()
    if hasattr(dist, "all_gather_single"):
        dist.monitored_barrier(dist.new_group(backend="antiphon"))


def dead(rank, world):
    """A rank that dies: who waits to meet it for a transfer, or would, is told long before the group's time limit."""
    gone = world - 1
    begun = dist.irecv(torch.zeros(1), gone, tag=1) if rank != gone else None
    dist.barrier()
    if rank != gone:
        fails("lost", lambda: begun)
        others = [other for other in range(world) if other != rank]
        for peer in others:
            fails("lost", lambda: dist.irecv(torch.zeros(1), peer, tag=2))  # noqa: B023
            fails("lost", lambda: dist.isend(torch.zeros(1), peer, tag=2))  # noqa: B023
        fails("lost", lambda: dist.all_reduce(torch.ones(1)))
        fails("lost", lambda: dist.new_group(backend="antiphon"), AntiphonError)
        # Before anything is asked of the store, in which others would look for the group.
        fails("lost", lambda: antiphon.torch._create(None, rank, world, timedelta(seconds=20)))
    # Without a goodbye.
    print("dead: ok", flush=True)
    os._exit(0)


def interrupted(rank, world):
    """Training of which a rank comes too late, and dies: the others are told so by Python."""
    step = steps(dist.new_group(backend="antiphon", timeout=timedelta(seconds=3)))
    step()
    if rank == 0:
        fails("made no progress for 3s", step)
        brief = timedelta(seconds=1)
        fails("not all of its 2 ranks had come within 1 s", lambda: dist.new_group(backend="antiphon", timeout=brief), TimedOutError)
    dist.barrier()
    step = steps(dist.distributed_c10d._get_default_group())
    step()
    if rank == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        fails("is lost", step)
        # Its future makes the error torch's own; the work has it as it is.
        fails("PeerLostError", lambda: work.get_future())
        fails("is lost", lambda: work, PeerLostError)
        assert isinstance(work.exception(), PeerLostError) and not work.is_success()
    print("interrupted: ok", flush=True)
    os._exit(0)


def raised(rank, world):
    """A rank whose program ends by an exception: the others fail when its process is gone, and not before."""
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        raise ValueError("boom")
    fails("rank 1", lambda: dist.all_reduce(torch.ones(1)))
    assert ending(sys.argv[2]).exists()


def ending(file):
    """What a program that ends leaves where the others look."""
    return Path(f"{file}-ended")


def steps(group):
    """A step of training over a group."""
    network = DistributedDataParallel(torch.nn.Linear(4, 4), process_group=group)
    return lambda: network(torch.ones(2, 4)).sum().backward()


def left(rank, world):
    """A program that ends without a goodbye while a transfer that has begun waits for its peer."""
    x = torch.ones(4)
    if rank == 0:
        dist.recv(x, 1)
        # The next one of this lane waits for nothing else any more.
        pending = dist.irecv(x, 1)
    else:
        dist.send(x, 0)
    dist.barrier()
    print("left: ok", flush=True)
    if rank == 0:
        assert not pending.is_completed()
    else:
        fails("rank 0", lambda: dist.all_reduce(x))
    sys.exit()


@contextlib.contextmanager
def nobody_meets_after():
    """Threads in which ranks wait for each other end with their group; the library would wait for two minutes."""
    names = ("antiphon send", "antiphon receive")
    meeting = [thread for thread in threading.enumerate() if thread.name.startswith(names) and " meet" in thread.name]
    assert meeting
    yield
    for thread in meeting:
        thread.join(60)
    assert not any(thread.is_alive() for thread in meeting), meeting


def strangers(rank, world):
    """Others of the node who come to a transfer's door before its rank does."""
    from antiphon._torch_meeting import meet

    place, password, late = f"antiphon-{secrets.token_hex(16)}", secrets.token_hex(16), threading.Event()

    def stranger(said):
        way = socket.socket(socket.AF_UNIX)
        while way.connect_ex(f"\0{place}-door"):
            assert not late.is_set()
            time.sleep(0.001)
        # It may have been sent away by now.
        with contextlib.suppress(ConnectionError):
            way.sendall(said)
        return way

    giving_up = threading.Timer(60, late.set)
    giving_up.start()
    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(meet, place, password, 0, 60, "host", late.is_set, "dp")]
        ways = [stranger(said) for said in (b"", b"\0", b"x" * len(password), password[:-1].encode())]
        ranks.append(pool.submit(meet, place, password, 1, 60, "host", late.is_set, "dp"))
        ends = [rank.result() for rank in ranks]
    giving_up.cancel()
    assert [end.world for end in ends] == [2, 2]
    for way in ways:
        with way, contextlib.suppress(ConnectionError):
            assert not way.recv(1)
    for end in ends:
        end.close()


def several_end_together(group, works):
    """Several transfers that hang, each in a lane of its own, have together the time that one has to end."""
    from antiphon._torch_lanes import Lane

    told, close, end = [], Lane.close, Lane.end

    def closed(lane):
        told.append(None)
        close(lane)

    def ended(lane, until):
        told.append(until)
        end(lane, until)

    Lane.close, Lane.end = closed, ended
    try:
        ends_by(group.shutdown, works, "is given up")
    finally:
        Lane.close, Lane.end = close, end
    # Those of the works, and that of the group's collectives: asked, waited for, and waited for again once they were given up.
    lanes = len(works) + 1
    assert told[:lanes] == [None] * lanes and None not in told[lanes:], told
    assert [told[lanes:].count(until) for until in (told[lanes], told[-1])] == [lanes] * 2, told


def ends_by(end, works, text):
    """Calls that are waited for by threads fail when their group ends."""
    told = []

    def wait(work):
        fails(text, lambda: work)
        told.append(work)

    waiting = [threading.Thread(target=wait, args=(work,), daemon=True) for work in works]
    for thread in waiting:
        thread.start()
    end()
    for thread in waiting:
        thread.join(60)
    assert len(told) == len(works) and all(text in str(work.exception()) for work in works), told
