"""`python -m antiphon compile`, as it is run."""

import json
import subprocess
import sys

import pytest

SWAP = """\
import sys
from antiphon.language import *

assert __name__ == "__main__"
chunks = int(sys.argv[1]) if len(sys.argv) > 1 else 1
for name in ("first", "swap"):
    with CollectiveProgram(name, SendRecv(2, chunks, False), 2):
        for me, peer in [(0, 1), (1, 0)]:
            channel = MemoryChannel(peer, me)
            channel.put(Rank(peer).get_output_buffer()[:], Rank(me).get_input_buffer()[:], tb=0)
            channel.signal(0)
            channel.wait(0)
print(JSON() if False else sys.argv[1:])
"""


@pytest.fixture
def program(tmp_path):
    """Writes a program's file."""

    def write(text=SWAP, name="prog.py"):
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.fixture
def antiphon(tmp_path):
    """Runs the command in the folder of the programs."""

    def run(*arguments):
        command = [sys.executable, "-m", "antiphon", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_the_last_programs_plan_is_written(program, antiphon, tmp_path):
    done = antiphon("compile", program(), "3", "--size", "7", "-o", "plan.json", "--compact", "-x")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['3', '--size', '7', '-x']\n"
    text = (tmp_path / "plan.json").read_text()
    plan = json.loads(text)
    assert (plan["name"], plan["gpus"][0]["input_chunks"]) == ("swap", 3)
    assert text == json.dumps(plan, separators=(",", ":")) + "\n"


def test_plans_are_indented_unless_compact(program, antiphon, tmp_path):
    assert antiphon("compile", "--output=plan.json", program()).returncode == 0
    text = (tmp_path / "plan.json").read_text()
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


def test_compatible_and_report(program, antiphon, tmp_path):
    done = antiphon("compile", "--compatible", "--report", program(), "-o", "plan.json")
    assert done.returncode == 0
    assert done.stderr.startswith("operations: 6 recorded, 6 fused\nblock synchronisations: 0 written, ")
    (block,) = json.loads((tmp_path / "plan.json").read_text())["gpus"][0]["threadblocks"]
    assert [op["name"] for op in block["ops"]] == ["put", "nop", "signal", "nop", "wait", "nop"]


def test_what_follows_two_dashes_is_the_programs(program, antiphon, tmp_path):
    done = antiphon("compile", "-o", "plan.json", "--", program(), "2", "-o", "other.json", "--report")
    assert (done.returncode, done.stdout) == (0, "['2', '-o', 'other.json', '--report']\n")
    assert (tmp_path / "plan.json").exists() and not (tmp_path / "other.json").exists()


def test_a_program_that_prints_its_plan_needs_no_command(program, antiphon, tmp_path):
    printing = SWAP.replace("            channel.wait(0)\n", "            channel.wait(0)\n        text = JSON()\n")
    printing = printing.replace("JSON() if False else sys.argv[1:]", "text")
    path = tmp_path / program(printing)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=True)
    done = antiphon("compile", path.name, "-o", "plan.json")
    assert (done.returncode, done.stdout) == (0, "the plan is written to plan.json\n")
    assert (tmp_path / "plan.json").read_text() == plain.stdout


def test_programs_import_what_lies_beside_them(program, antiphon, tmp_path):
    (tmp_path / "sub").mkdir()
    program("CHUNKS = 5\n", "sub/beside.py")
    text = SWAP.replace("import sys\n", "import sys\nfrom beside import CHUNKS\n").replace("else 1\n", "else CHUNKS\n")
    assert antiphon("compile", program(text, "sub/prog.py"), "-o", "plan.json").returncode == 0
    assert json.loads((tmp_path / "plan.json").read_text())["gpus"][0]["input_chunks"] == 5


FAILURES = {
    "raises": (
        "def f():\n    raise KeyError('mine')\nf()\n",
        1,
        ["Traceback", 'prog.py", line 3, in <module>', 'prog.py", line 2, in f', "KeyError: 'mine'"],
    ),
    "does not parse": ("def f(:\n", 1, ["prog.py", "SyntaxError"]),
    "misuses the language": (
        SWAP + "with CollectiveProgram('p', SendRecv(2, 1, False), 2):\n    Rank(2)\n",
        1,
        [f'prog.py", line {SWAP.count(chr(10)) + 2}, in <module>', "RuntimeError: cannot use rank 2"],
    ),
    "does not pair": (
        SWAP.replace("            channel.wait(0)\n", ""),
        1,
        ["cannot compile prog.py: Signal/Wait mismatch", f"prog.py:{SWAP[: SWAP.index('channel.signal')].count(chr(10)) + 1}"],
    ),
    "makes nothing": ("print('hello')\n", 1, ["it makes no CollectiveProgram"]),
    "exits": (SWAP + "sys.exit(7)\n", 7, []),
    "exits with a text": (SWAP + "sys.exit('no more')\n", 1, ["no more"]),
}


@pytest.mark.parametrize(("text", "status", "errors"), FAILURES.values(), ids=FAILURES)
def test_a_program_that_fails_writes_nothing(program, antiphon, tmp_path, text, status, errors):
    done = antiphon("compile", program(text), "-o", "plan.json")
    assert done.returncode == status
    for error in errors:
        assert error in done.stderr
    assert "_compile.py" not in done.stderr
    assert not (tmp_path / "plan.json").exists()


def test_an_exit_without_failure_is_none(program, antiphon, tmp_path):
    assert antiphon("compile", program(SWAP + "sys.exit()\n"), "-o", "plan.json").returncode == 0
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["compile"], "no program to compile"),
        (["compile", "prog.py"], "give -o FILE"),
        (["compile", "prog.py", "-o"], "-o needs the name of a file"),
        (["compile", "--quick", "prog.py", "-o", "plan.json"], "unknown option --quick"),
        (["compile", "absent.py", "-o", "plan.json"], "cannot compile absent.py: No such file"),
        (["compose"], "cannot run command 'compose': allowed compile"),
    ],
)
def test_wrong_command_lines_are_refused(program, antiphon, arguments, error):
    program()
    done = antiphon(*arguments)
    assert done.returncode == 2
    assert error in done.stderr


def test_a_file_that_cannot_be_written(program, antiphon):
    done = antiphon("compile", program(), "-o", "absent/plan.json")
    assert done.returncode == 1
    assert "cannot write absent/plan.json: No such file or directory" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--help"], ["compile", "--help"]])
def test_help_is_on_standard_output(antiphon, arguments):
    done = antiphon(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: python -m antiphon")
