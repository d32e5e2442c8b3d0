"""The backend of torch.distributed, over processes.

Run by the Python of these tests where it has torch, else by the one that ANTIPHON_TORCH_PYTHON names, else by the
system's. `ANTIPHON_NEEDS_TORCH` makes it a failure that none has.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import processes

import antiphon

RANKS = Path(__file__).parent / "torch_ranks.py"


@functools.cache
def python():
    """A Python with torch; None without."""
    named = os.environ.get("ANTIPHON_TORCH_PYTHON")
    for candidate in [named] if named else [sys.executable, "/usr/bin/python3"]:
        probe = [candidate, "-c", "import torch.distributed; assert torch.distributed.is_available()"]
        if Path(candidate).exists() and not subprocess.run(probe, capture_output=True, check=False).returncode:
            return candidate
    assert not os.environ.get("ANTIPHON_NEEDS_TORCH"), "no Python has torch, and ANTIPHON_NEEDS_TORCH is set"
    return None


def run(case, world, folder, **more):
    if python() is None:
        pytest.skip("SKIP: no Python has torch; install it, or name one by ANTIPHON_TORCH_PYTHON")
    # The package that is tested, and nothing else of this Python, for one that may be another.
    (folder / "path").mkdir()
    (folder / "path" / "antiphon").symlink_to(Path(antiphon.__file__).parent)
    path = {"PYTHONPATH": str(folder / "path"), "OMP_NUM_THREADS": "1"}
    said = processes(world, [str(RANKS), case, str(folder / "meet")], folder, python(), **path, **more)
    assert said == [f"{case}: ok\n"] * world


@pytest.mark.parametrize("world", [2, 3])
def test_every_call(world, tmp_path):
    run("collectives", world, tmp_path)


@pytest.mark.parametrize("case", ["transfers", "asynchronous", "refused", "training", "kinds", "limits", "ended", "later"])
def test_over_two_ranks(case, tmp_path):
    run(case, 2, tmp_path)


@pytest.mark.parametrize("case", ["transfers", "training"])
def test_over_two_nodes(case, tmp_path):
    run(case, 2, tmp_path, NODES="2")
