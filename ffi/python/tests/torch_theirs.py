"""PyTorch's own tests of what a backend does, which it runs over gloo: here groups that they ask of gloo are Antiphon's.

Started as a program, with a folder of its own. Last it prints how many tests have passed.
"""

import functools
import inspect
import multiprocessing
import os
import sys
import unittest

import torch
import torch.distributed as dist

import antiphon.torch  # noqa: F401

NOT_OURS = {
    # The name of the backend, and its errors' words.
    "test_get_backend",
    "test_barrier_timeout_full_group",
    "test_monitored_barrier_gloo",
    "test_monitored_barrier_gloo_rank_0_timeout",
    "test_monitored_barrier_gloo_subgroup",
    # Receives from whoever sends, which are refused.
    "test_send_recv_any_source",
    "test_send_recv_any_source_autograd_profiler",
    "test_send_recv_any_source_torch_profiler",
}
MAKERS = ("init_process_group", "new_group", "new_subgroups", "new_subgroups_by_enumeration")
"""What makes groups, and takes the name of a backend."""


def ours(make):
    """Makes a group of Antiphon's where one of gloo's is asked for."""
    form = inspect.signature(make)

    @functools.wraps(make)
    def made(*arguments, **named):
        call = form.bind(*arguments, **named)
        if str(call.arguments.get("backend")) == "gloo":
            call.arguments["backend"] = "antiphon"
        return make(*call.args, **call.kwargs)

    return made


def suite():
    """The tests, each over processes that are forked from this one."""
    os.environ.update(BACKEND="gloo", WORLD_SIZE="3", TEMP_DIR=os.getcwd())
    # It looks at these variables when it is imported.
    from torch.testing._internal.distributed import distributed_test as theirs

    class Forked(theirs.TestDistBackend, theirs.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    # So that they are found again in the processes.
    Forked.__module__ = "__main__"
    names = unittest.TestLoader().getTestCaseNames(Forked)
    assert NOT_OURS < set(names), NOT_OURS - set(names)
    return unittest.TestSuite(Forked(name) for name in names if name not in NOT_OURS)


for maker in MAKERS:
    wrapped = ours(getattr(dist, maker))
    setattr(dist, maker, wrapped)
    setattr(dist.distributed_c10d, maker, wrapped)
torch.set_num_threads(1)
result = unittest.TextTestRunner(sys.stderr).run(suite())
print(result.testsRun - len(result.skipped) - len(result.failures) - len(result.errors))
sys.exit(not result.wasSuccessful())
