"""Cases of `torch_ranks.py` that one rank shows, with stand-ins for what PyTorch lacks without CUDA."""

import contextlib
import gc
import traceback
import warnings
import weakref
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist

import antiphon.torch
from antiphon import _torch_futures, _torch_lanes, _torch_streams
from antiphon._torch_futures import anew
from antiphon._torch_meeting import Meeting
from antiphon.errors import AbortedError


class _Event:
    """`torch.cuda.Event`, for a GPU that has always done everything."""

    def record(self, stream):
        pass

    def query(self):
        return True


class _Stream:
    """`torch.cuda.Stream`."""

    def __init__(self, device=None):
        pass

    def wait_event(self, event):
        pass


@contextlib.contextmanager
def cuda():
    """Has streams and events stood in for."""
    names = {"Event": _Event, "Stream": _Stream, "current_stream": _Stream}
    before = {name: getattr(torch.cuda, name) for name in names}
    for name, other in names.items():
        setattr(torch.cuda, name, other)
    try:
        yield
    finally:
        for name, other in before.items():
            setattr(torch.cuda, name, other)


def freed(rank, world):
    """What a call gives goes with its last reference, and does not wait for Python's collector."""
    chain = _torch_futures.Chain()
    line = SimpleNamespace(chain=chain, device=torch.device("cuda", 0), error=lambda: None)

    def on_the_host(x):
        outcome = _torch_futures.Outcome(chain)
        work = _torch_lanes.HostWork(outcome)
        outcome.succeed([x])
        return work

    def in_a_stream(x):
        work = _torch_streams.StreamWork(line, False)
        work.put([x])
        return work

    gc.collect()
    gc.disable()
    try:
        with cuda():
            for made in (on_the_host, in_a_stream):
                # More than a small one, which is kept.
                x = torch.empty(10000)
                seen = weakref.ref(x)
                work = made(x)
                work.wait()
                del x, work
                assert seen() is None, made.__name__
    finally:
        gc.enable()


def told(rank, world):
    """However often a broken group says so, nothing adds up: neither the error, nor what those had to whom it was said."""
    group = dist.new_group(backend="antiphon")
    x = torch.ones(1)
    work = group.allreduce([x])
    work.wait()
    group.abort()
    gone = Meeting("nobody", nobody)
    assert gone.over(60)
    error = AbortedError("aborted")
    line = SimpleNamespace(chain=_torch_futures.Chain(), device=torch.device("cuda", 0), error=lambda: error)
    with cuda():
        streamed = _torch_streams.StreamWork(line, False)
        streamed.put([x])
    failed = _torch_lanes.HostWork(_torch_futures.Outcome(_torch_futures.Chain()))
    failed.outcome.fail(error)
    for call in (
        lambda: group.allreduce([x]), group._check, failed.wait, failed.result,
        gone.communicator, streamed.wait, lambda: group._host.submit(lambda _: None, []),
    ):  # fmt: skip
        frames, seen = zip(*(said(call) for _ in range(5)))
        gc.collect()
        assert len(set(frames)) == 1, frames
        assert [each() for each in seen] == [None] * 5
    # What is nobody's fault comes from somewhere, and keeps its cause.
    try:
        raise ValueError("boom") from KeyError("x")
    except ValueError as error:
        for _ in range(2):
            assert repr(anew(error)) == repr(error) and anew(error).__cause__ is error.__cause__
            assert anew(error).__traceback__ is error.__traceback__

    class Odd(Exception):
        def __init__(self, one, two):
            super().__init__(one)

    assert anew(odd := Odd(1, 2)) is odd


def nobody(given_up):
    raise AbortedError("nobody came")


def said(call):
    """How many frames the error of a call has gone through, and what there was in one of them."""
    mine = torch.ones(1)
    try:
        call()
    except AbortedError as error:
        return len(traceback.extract_tb(error.__traceback__)), weakref.ref(mine)
    raise AssertionError("it did not fail")


def made(rank, world):
    """What a group is made with: PyTorch's options, of which it has none, and the device of its barriers."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dist.new_group(backend="antiphon")
        assert not [each for each in said if "antiphon" in str(each.message)]
        group = dist.new_group(backend="antiphon", pg_options=SimpleNamespace(wire="tcp"))
    assert "pg_options, SimpleNamespace, change nothing" in "".join(str(each.message) for each in said)
    group.allreduce([torch.ones(1)]).wait()
    device = torch.device("cpu", 0)
    # As later releases say it.
    given = SimpleNamespace(
        store=dist.PrefixStore("made", dist.distributed_c10d._get_default_store()), group_rank=0, group_size=1,
        timeout=timedelta(seconds=20), process_group=SimpleNamespace(bound_device_id=device), group_id="3",
    )  # fmt: skip
    group = antiphon.torch._create_of(given, None)
    assert group.bound_device_id == device
    # Its communicator is called as PyTorch calls it.
    seen = []
    group._host.submit(lambda communicator: seen.append(communicator.name), None).wait()
    assert seen == ["group 3"] and group.getGroupName() == "3"
    group.shutdown()
    if hasattr(torch._C._distributed_c10d._DistributedBackendOptions, "process_group"):
        group = dist.new_group(backend="antiphon", device_id=device)
        assert group.bound_device_id == device
        dist.barrier(group)
