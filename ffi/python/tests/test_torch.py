"""The backend of torch.distributed, over processes.

Run by the Python that ANTIPHON_TORCH_PYTHON names, else by that of these tests where it has torch, else by the system's.
It is a failure that the named one has none; `ANTIPHON_NEEDS_TORCH` makes it one that none has.
"""

import contextlib
import functools
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import outcomes, processes, run_whole
from test_pages import PROGRAMS, REPOSITORY
from torch_template import Template

import antiphon

RANKS = Path(__file__).parent / "torch_ranks.py"
EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "train.py"


@functools.cache
def python():
    """A Python with torch; None without."""
    named = os.environ.get("ANTIPHON_TORCH_PYTHON")
    for candidate in [named] if named else [sys.executable, "/usr/bin/python3"]:
        probe = [candidate, "-c", "import torch.distributed; assert torch.distributed.is_available()"]
        if Path(candidate).exists() and not subprocess.run(probe, capture_output=True, check=False).returncode:
            return candidate
    assert not named, f"{named}, which ANTIPHON_TORCH_PYTHON names, has no torch.distributed"
    assert not os.environ.get("ANTIPHON_NEEDS_TORCH"), "no Python has torch, and ANTIPHON_NEEDS_TORCH is set"
    return None


@pytest.fixture(scope="module", autouse=True)
def template():
    """What the ranks of most tests are forked from; the others are there for how processes begin and end."""
    if python() is None:
        pytest.skip("SKIP: no Python has torch; install it, or name one by ANTIPHON_TORCH_PYTHON")
    with contextlib.closing(Template(python())) as started:
        yield started


def environment(folder):
    """Has the Python with torch find the package that is tested, and nothing else of this one, which may be another."""
    (folder / "path").mkdir()
    (folder / "path" / "antiphon").symlink_to(Path(antiphon.__file__).parent)
    return {"PYTHONPATH": str(folder / "path"), "OMP_NUM_THREADS": "1"}


@pytest.fixture
def run(template, tmp_path):
    def run(case, world, **more):
        """Each of `world` ranks is a process in which the case of `torch_ranks.py` passes."""
        more = {**environment(tmp_path), **more}
        command = [str(RANKS), case, str(tmp_path / "meet")]
        said = processes(world, command, tmp_path, template.python, template.start, **more)
        assert said == [f"{case}: ok\n"] * world

    return run


@pytest.mark.parametrize("case", ["collectives", "unequal", "split"])
@pytest.mark.parametrize("world", [2, 3])
def test_every_call(world, case, run):
    run(case, world)


CASES = [
    *["transfers", "asynchronous", "callbacks", "hooks", "refused", "training", "kinds", "limits", "ended", "left", "later"],
    *["interrupted", "copies", "again", "forked", "states", "joined", "compiled", "profiled", "sparse", "monitored", "lists"],
    *["forms", "wrapped"],
]


@pytest.mark.parametrize("case", CASES)
def test_over_two_ranks(case, run):
    run(case, 2)


@pytest.mark.parametrize(("world", "more"), [(2, {}), (3, {}), (2, {"NODES": "2"})], ids=["two ranks", "three", "two nodes"])
def test_a_rank_that_dies(world, more, run):
    run("dead", world, **more)


def test_a_rank_that_raises_fails_first(tmp_path):
    command = [str(RANKS), "raised", str(tmp_path / "meet")]
    (first, _, why), (second, _, raised) = outcomes(2, command, tmp_path, python(), **environment(tmp_path))
    # Rank 0 goes on to a barrier that rank 1 never comes to.
    assert first and "rank 1" in why and "AssertionError" not in why, why
    assert second == 1 and "ValueError: boom" in raised, (second, raised)


def test_a_future_that_calls_while_its_program_ends(tmp_path):
    command = [str(RANKS), "last", str(tmp_path / "meet")]
    path = environment(tmp_path)
    assert processes(2, command, tmp_path, python(), **path) == ["last: ok\ncalled\n"] * 2
    for status, out, why in outcomes(2, [*command[:2], str(tmp_path / "again")], tmp_path, python(), RAISES="1", **path):
        assert (status, out) == (1, "called\n") and "ValueError: boom" in why, (status, out, why)


def test_a_rank_of_several_processes_that_raises_fails_first(tmp_path):
    command = [str(RANKS.with_name("torch_spawned.py")), str(tmp_path / "meet")]
    ((status, _, why),) = outcomes(1, command, tmp_path, python(), **environment(tmp_path))
    assert status and "ValueError: boom" in why and "PeerLost" not in why, why


def test_what_pytorch_tests_itself_of_a_backend(tmp_path):
    path = environment(tmp_path)
    probe = "import expecttest, torch; assert [int(part) for part in torch.__version__.split('.')[:2]] >= [2, 15]"
    if subprocess.run([python(), "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("SKIP: it is PyTorch 2.15's, and takes expecttest")
    code, out, err = run_whole([python(), str(RANKS.with_name("torch_theirs.py"))], tmp_path, **path)
    assert code == 0, err
    assert int(out.splitlines()[-1]) >= 80, err


def test_others_keep_no_rank_out(run):
    run("strangers", 1)


@pytest.mark.parametrize("case", ["freed", "told", "made"])
def test_alone(case, run):
    run(case, 1)


@pytest.mark.parametrize("case", ["transfers", "training", "ended"])
def test_over_two_nodes(case, run):
    run(case, 2, NODES="2")


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def launched(program, folder):
    """What two ranks of a program print, with what torchrun says to the processes that it starts."""
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    # Debian's PyTorch 2 is built without what its store uses otherwise.
    meet["USE_LIBUV"] = "0"
    path = environment(folder)
    # Each has its number from the test's own launcher, which calls it otherwise.
    start = "import os, runpy, sys; os.environ['RANK'] = os.environ['ANTIPHON_RANK']; runpy.run_path(sys.argv[1])"
    return processes(2, ["-c", start, str(program)], folder, python(), **path, **meet)


def test_the_program_of_the_manual(tmp_path):
    program = PROGRAMS["docs/python.md: torch.distributed"]
    check = "x = torch.ones(3)\ntorch.distributed.all_reduce(x)\nprint(x.tolist())\ntorch.distributed.destroy_process_group()\n"
    (tmp_path / "program.py").write_text(program + check)
    assert launched(tmp_path / "program.py", tmp_path) == ["[2.0, 2.0, 2.0]\n"] * 2


def test_a_release_that_looks_finds_the_backend_by_its_name(tmp_path):
    path = environment(tmp_path)
    probe = "import torch.distributed as dist; assert hasattr(dist.Backend, '_ensure_backend_registered')"
    if subprocess.run([python(), "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("SKIP: this PyTorch asks installed packages for no backend")
    # As an installer writes the table of the package's own file.
    project = (REPOSITORY / "ffi/python/pyproject.toml").read_text(encoding="utf-8")
    table = re.search(r'^\[project\.entry-points\."(.+)"\]\n((?:\w+ = ".+"\n)+)', project, re.MULTILINE)
    described = tmp_path / "path" / "antiphon-0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: antiphon\nVersion: 0\n")
    (described / "entry_points.txt").write_text(f"[{table[1]}]\n" + table[2].replace('"', ""))
    program = (
        "import os, sys, torch.distributed as dist\n"
        "rank = int(os.environ['ANTIPHON_RANK'])\n"
        "dist.init_process_group('antiphon', init_method=f'file://{sys.argv[1]}', rank=rank, world_size=2)\n"
        "print(dist.get_backend(), 'antiphon.torch' in sys.modules)\n"
        "dist.destroy_process_group()\n"
    )
    said = processes(2, ["-c", program, str(tmp_path / "meet")], tmp_path, python(), **path)
    assert said == ["antiphon True\n"] * 2


def test_torchrun_starts_the_first_program_of_the_manual(tmp_path):
    (tmp_path / "sum.py").write_text(PROGRAMS["docs/python.md: Five minutes"])
    line = re.search(r"`torchrun ([^`]* sum\.py)`", (REPOSITORY / "docs/python.md").read_text(encoding="utf-8"))
    more = {**environment(tmp_path), "PET_MASTER_PORT": free_port(), "USE_LIBUV": "0"}
    # PyTorch 1.13 under Python 3.11 cannot start ranks whose output it does not keep.
    more.update(PET_REDIRECTS="1", PET_TEE="1", TMPDIR=str(tmp_path))
    # As a module it is that of the Python with torch.
    command = [python(), "-m", "torch.distributed.run", *line[1].split()]
    code, out, err = run_whole(command, tmp_path, **more)
    if code and "use_libuv was requested but" in err:
        pytest.skip("SKIP: torchrun of Debian 13's PyTorch starts nothing: it asks for libuv, without which that was built")
    said = sorted(re.sub(r"^\[\w+\]:", "", line) for line in out.splitlines())
    assert (code, said) == (0, ["0 3.0", "1 3.0"]), err


def test_the_example(tmp_path):
    said = launched(EXAMPLE, tmp_path)
    for rank, line in enumerate(said):
        found = re.fullmatch(rf"rank {rank} of 2: loss (\d+\.\d+)\n", line)
        # It begins at 8, the variance of a sum of eight numbers.
        assert found and float(found[1]) < 1, line
