"""The command that the README tells users of Python: what it installs in an empty environment runs the README's program.

It fetches the build backend and NumPy, and builds the library, so it is run where `ANTIPHON_NEEDS_INSTALL` is set: a step of CI.
"""

import os
import re
import subprocess
import sys

import pytest
from ranks import processes
from test_pages import PROGRAMS, REPOSITORY, RUNS

NEEDS = "ANTIPHON_NEEDS_INSTALL"
LIMIT = 1800
"""Seconds: the library may have to be built from nothing."""


def commands(page):
    """What a page has a reader type to install the package."""
    return re.findall(r"(?:`|^\$ )(pip install \./ffi/python numpy)\b", (REPOSITORY / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_pages_say_the_same():
    assert len(commands("README.md")) == len(commands("docs/python.md")) == 1


def test_what_is_installed_runs_the_program_of_the_readme(tmp_path, monkeypatch):
    if not os.environ.get(NEEDS):
        pytest.skip(f"SKIP: it takes the network and builds the library; {NEEDS} has it run")
    for name in ("ANTIPHON_LIB_PATH", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.delenv(name, raising=False)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=LIMIT)
    bin = tmp_path / "venv" / "bin"
    program, *arguments = commands("README.md")[0].split()
    subprocess.run([bin / program, *arguments, "-q"], cwd=REPOSITORY, check=True, timeout=LIMIT)
    (tmp_path / "program.py").write_text(PROGRAMS["README.md: Ways in"] + "print(antiphon.__file__)\n")
    said = processes(2, ["program.py"], tmp_path, bin / "python")
    for out in said:
        first, place = out.splitlines()
        assert first + "\n" == RUNS["README.md: Ways in"].prints[0] and place.startswith(str(tmp_path)), said
