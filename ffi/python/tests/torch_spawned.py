"""A program of `test_torch.py` that starts its ranks by torch.multiprocessing; one of them raises."""

import atexit
import sys
import time

if __name__ != "__main__":
    # In the ranks, behind all that others do when the interpreter ends: it takes its time.
    atexit.register(lambda: time.sleep(1))

import torch
import torch.distributed as dist

import antiphon.torch  # noqa: F401: it registers the backend.


def run(rank, file):
    dist.init_process_group("antiphon", init_method=f"file://{file}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(1))
    if rank == 1:
        raise ValueError("boom")
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, (sys.argv[1],), 2)
