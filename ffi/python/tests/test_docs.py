"""The examples of the language's pages: every block of Python is compiled as a program's file, and its plan is run.

Between a block and a block of text that follows it, the page may say what the text is:

- `It prints:` the program's whole output, when it is run by Python itself;
- `It is refused:` lines that the compiler's error has, in place of a plan.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", REPOSITORY / "ffi/python/README.md", *sorted((REPOSITORY / "docs/dsl").glob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<text>.*?)^```$(?:\n+It (?P<says>prints|is refused):\n+```text\n(?P<expected>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Example:
    """A block of Python, and what the page says of it."""

    text: str
    says: str | None
    expected: str


def examples():
    for page in PAGES:
        text = page.read_text()
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start()) + 2
            example = Example(found["text"], found["says"], found["expected"] or "")
            yield pytest.param(example, id=f"{page.relative_to(REPOSITORY)}:{line}")


def test_there_are_examples_of_every_kind():
    said = {example.values[0].says for example in examples()}
    assert said == {None, "prints", "is refused"}


@pytest.mark.parametrize("example", list(examples()))
def test_examples_do_what_their_page_says(example, tmp_path):
    (tmp_path / "prog.py").write_text(example.text)
    if example.says == "prints":
        done = python(tmp_path, "prog.py")
        assert (done.returncode, done.stdout, done.stderr) == (0, example.expected, "")
    done = python(tmp_path, "-m", "antiphon", "compile", "prog.py", "-o", "plan.json")
    if example.says == "is refused":
        assert done.returncode == 1 and not (tmp_path / "plan.json").exists()
        for line in example.expected.splitlines():
            assert line in done.stderr, done.stderr
        return
    if "it makes no CollectiveProgram" in done.stderr:
        assert example.says == "prints", "a block that is no program and prints nothing shows nothing"
        return
    assert done.returncode == 0, done.stderr
    run_plan(example, tmp_path)


def python(folder, *arguments):
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def run_plan(example, folder):
    """Runs the plan with every rank's result compared."""
    antiphon = command()
    if antiphon is None:
        pytest.skip("SKIP running the plan: no antiphon command; build it with `cargo build --release`")
    job = ["run", "plan.json", "--size", "64K", "-n", "2", "-w", "1"]
    done = subprocess.run([antiphon, *job], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    # Elements that are left to chance would be a mistake in an example.
    assert "not compared" not in done.stderr


def command():
    """The antiphon command: the one that ANTIPHON_COMMAND names, else the one that is built here; None without."""
    named = os.environ.get("ANTIPHON_COMMAND")
    if named:
        assert Path(named).is_file(), f"ANTIPHON_COMMAND names {named}, which is not there"
        return Path(named).resolve()
    built = REPOSITORY / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "antiphon"
    return built if built.is_file() else None
