"""Programs that use the installed package pass `mypy --strict`, as its mark `py.typed` promises."""

import importlib.util
import os
import subprocess
import sys

import pytest
from test_pages import PROGRAMS, RUNS

import antiphon

STRICT = """
import antiphon
import numpy as np

with antiphon.Communicator.in_process(1)[0] as communicator:
    communicator.all_reduce(np.ones(4, "float32"))
    communicator.sing()  # type: ignore[attr-defined]
"""
"""What is ignored without need is an error, too: so `communicator` is no Any."""


@pytest.fixture
def typed(tmp_path):
    """Returns what mypy says of programs; nothing if they are right."""
    if importlib.util.find_spec("mypy") is None:
        assert not os.environ.get("ANTIPHON_NEEDS_MYPY"), "mypy is not there, and ANTIPHON_NEEDS_MYPY is set"
        pytest.skip("SKIP: mypy is not there; pip install mypy")

    def check(programs, *options):
        for number, program in enumerate(programs):
            (tmp_path / f"program_{number}.py").write_text(program)
        command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *options, str(tmp_path)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        return done.stdout + done.stderr

    return check


def test_every_name_is_exported(typed):
    names = [name for name in antiphon.__all__ if not name.startswith("__")]
    assert typed([STRICT + "print(antiphon.__version__)\n" + "".join(f"print(antiphon.{name})\n" for name in names)]) == ""


def test_programs_of_the_pages(typed):
    """Their functions say no types."""
    assert typed([RUNS[name].before + PROGRAMS[name] for name in RUNS], "--allow-untyped-defs") == ""
