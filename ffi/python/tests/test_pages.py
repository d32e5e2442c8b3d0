"""The programs of the README and of `docs/python.md` (blocks of `py`), and the command lines that start them, as a reader runs them.

Each program runs over two processes. A fragment has what stands around it on its page put before it, and a check after it. Those
for PyTorch run in `test_torch.py`, those for GPUs on the simulated driver, in `tests/tests/gpu_c/page.py`.
"""

import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from ranks import LIMIT, processes, run_whole

REPOSITORY = Path(__file__).parents[3]
PAGES = ("README.md", "ffi/python/README.md", "docs/python.md")
BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """The blocks of a language on a page, by the headings that they stand under; a second one has its number behind it."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found, heading, at = {}, "", 0
    for block in BLOCK.finditer(text):
        # Between blocks, so that no comment of a program is taken for a heading.
        for heading in re.findall(r"^#+ (.*)$", text[at : block.start()], re.MULTILINE)[-1:]:
            number = 0
        at = block.end()
        if block["language"] == language:
            number += 1
            found[f"{page}: {heading}" + (f", {number}" if number > 1 else "")] = block["text"]
    return found


PROGRAMS = {name: text for page in PAGES for name, text in blocks(page, "py").items()}


@dataclass
class Run:
    """How a program is run, and what its ranks print, in any order."""

    before: str = ""
    after: str = ""
    prints: tuple[str, str] = ("", "")


TWO = "import antiphon\nimport numpy as np\ncommunicator = antiphon.communicator.default()\n"

RING = blocks("docs/python.md", "python")["docs/python.md: From a ring to a program in C++"]

RUNS = {
    "README.md: Ways in": Run(prints=("1.0\n", "1.0\n")),
    "ffi/python/README.md: antiphon": Run(after="assert (x == 2).all() and (y == 2).all()\n"),
    "docs/python.md: Five minutes": Run(prints=("0 3.0\n", "1 3.0\n")),
    "docs/python.md: Computing meanwhile": Run(before=TWO, prints=("2.0 0\n", "2.0 0\n")),
    "docs/python.md: Plans": Run(
        before=TWO + "send, receive = np.full(500, communicator.rank, 'float32'), np.zeros(1000, 'float32')\n",
        after="assert (receive == np.repeat([0, 1], 500)).all()\n",
    ),
    "docs/python.md: What serves calls by name": Run(
        before=TWO + "from antiphon.language import *\n" + RING,
        after="""
own, every = np.full(1 << 18, communicator.rank, "float32"), np.zeros(1 << 19, "float32")
assert "chosen: ring" in str(communicator.explain("allgather", every.nbytes))
antiphon.all_gather(own, every)
assert (every == np.repeat([0, 1], 1 << 18)).all()
""",
    ),
    "docs/python.md: Algorithms that are functions": Run(
        before=TWO,
        after="""
few, many = np.ones(1024, "float32"), np.ones(1025, "float32")
antiphon.all_reduce(few)
antiphon.all_reduce(many)
assert (few == 4).all() and (many == 2).all()
""",
    ),
    "docs/python.md: The log": Run(
        after="""
import os
said = []
logging.getLogger("antiphon").addFilter(lambda record: said.append(record.getMessage()))
os.environ["ANTIPHON_REPRODUCIBLE"] = "maybe"
antiphon.Communicator.in_process(1)[0].close()
antiphon.log_to(None)
assert "ANTIPHON_REPRODUCIBLE does nothing" in said[0], said
""",
    ),
}

ELSEWHERE = {
    "docs/python.md: torch.distributed": ("ffi/python/tests/test_torch.py", '"docs/python.md: torch.distributed"'),
    "docs/python.md: On GPUs": ("tests/tests/gpu_c/page.py", 'program("On GPUs")'),
    "docs/python.md: Algorithms that are functions, 2": (
        "tests/tests/gpu_c/page.py",
        'program("Algorithms that are functions", 1)',
    ),
}


def test_every_program_is_run():
    assert sorted(PROGRAMS) == sorted([*RUNS, *ELSEWHERE])
    for name, (file, call) in ELSEWHERE.items():
        assert call in (REPOSITORY / file).read_text(encoding="utf-8"), f"{file} does not run `{name}`"


def write_plans(folder):
    """The plans that programs load, as their pages have them made."""
    ring = [sys.executable, REPOSITORY / "examples/python/ring.py", "-o", "ring.json", "2"]
    subprocess.run(ring, cwd=folder, check=True, timeout=LIMIT)
    swap = blocks("ffi/python/README.md", "python")["ffi/python/README.md: antiphon"]
    done = subprocess.run([sys.executable, "-c", swap], check=True, timeout=LIMIT, capture_output=True)
    (folder / "swap.json").write_bytes(done.stdout)


@pytest.mark.parametrize("name", RUNS)
def test_programs_do_what_their_page_says(name, tmp_path):
    run = RUNS[name]
    write_plans(tmp_path)
    (tmp_path / "program.py").write_text(run.before + PROGRAMS[name] + run.after)
    said = processes(2, ["program.py"], tmp_path, ANTIPHON_CACHE_DIR=str(tmp_path))
    if any(run.prints):
        assert sorted(said) == sorted(run.prints)


# The others install packages and build programs in C++: steps of CI, and `test_examples.py`. Most of the README's are of other ways in.
CONSOLES = {
    name: text
    for page in ("README.md", "docs/python.md")
    for name, text in blocks(page, "console").items()
    if not re.search(r"^\$ (pip|g\+\+)", text, re.MULTILINE) and (page != "README.md" or "python sum.py" in text)
}


def test_there_are_command_lines():
    assert len(CONSOLES) == 4, list(CONSOLES)


@pytest.mark.parametrize("name", CONSOLES)
def test_command_lines_do_what_their_page_says(name, tmp_path):
    """Of the repository's root, with the program that stands above."""
    (tmp_path / "examples").symlink_to(REPOSITORY / "examples")
    page = name.partition(":")[0]
    (tmp_path / "sum.py").write_text(next(text for at, text in PROGRAMS.items() if at.startswith(f"{page}: ")))
    lines = CONSOLES[name].splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    script = "\n".join([f'python() {{ {shlex.quote(sys.executable)} "$@"; }}', *commands])
    code, out, err = run_whole(["bash", "-c", script], tmp_path, ANTIPHON_CACHE_DIR=str(tmp_path))
    assert code == 0, err
    expected = [line for line in lines if not line.startswith("$ ")]
    if expected:
        assert sorted(out.splitlines()) == sorted(expected), err
