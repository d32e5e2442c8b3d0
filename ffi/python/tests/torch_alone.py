"""Cases of `torch_ranks.py` that one rank shows, with stand-ins for what PyTorch lacks without CUDA."""

import contextlib
import gc
import weakref
from types import SimpleNamespace

import torch

from antiphon import _torch_futures, _torch_lanes, _torch_streams


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
