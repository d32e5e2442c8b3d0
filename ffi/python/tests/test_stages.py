"""Programs of every stage of the language compile as they are, in a Python of their own, and their plans run right.

Each program is run as its author would, `python prog.py`; what it prints is its plan. The command `antiphon` then runs
the plan over its ranks and compares every rank's result with the collective's definition. The command is the one that the
environment variable ANTIPHON_COMMAND names, else `target/release/antiphon` of this repository; without either, the plans
are only made, and the test says so.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from test_real_plans import TABLE

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
TIME_LIMIT = 120
# Two sizes: one of few bytes a chunk, and one that takes several steps of the programs' loops.
RUN = ["--begin", "48K", "--end", "768K", "--factor", "16", "--iters", "3", "--warmup", "1", "--timeout", "30s"]

# Published with a fault, and kept so: what is known of each. `wrong` is a result that every schedule gets wrong.
WRONG = {"alltoall_leaked_variable.py"}
RACES = {"alltoall_semaphore_at_one.py"}
# Published without waiting for what proxies still read: refused by the verifier, and right as long as nobody is that fast.
UNFLUSHED = {"reducescatter_two_nodes.py", "send_recv.py"}

# Of the programs in the current API those that carry out a collective; with the arguments of their last line in the table
# of real plans. The groups program runs only with more ranks than a small machine has cores.
CURRENT = {
    program: arguments.split()
    for plan, program, arguments in TABLE
    if not plan.startswith("unit_tests.") and program != "allgather_groups.py"
}


def command():
    """The path of the command `antiphon`, or None and the reason."""
    named = os.environ.get("ANTIPHON_COMMAND")
    if named:
        return (named, "") if os.access(named, os.X_OK) else (None, f"ANTIPHON_COMMAND={named} is no program")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parents[2] / "target"))
    built = target / "release" / "antiphon"
    if built.exists():
        return str(built), ""
    return None, "ANTIPHON_COMMAND is not set, and `cargo build --release` has not built target/release/antiphon"


class Made:
    """What a program printed: its plan, or why there is none."""

    def __init__(self, program, arguments=()):
        done = subprocess.run(
            [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=TIME_LIMIT
        )
        self.name = program.name
        self.status, self.text, self.errors = done.returncode, done.stdout, done.stderr
        self.plan = None
        if self.status == 0:
            try:
                self.plan = json.loads(self.text)
            except ValueError as error:
                self.errors += f"\nwhat it printed is no plan: {error}: {self.text[:200]!r}"


def make_all(programs):
    """Runs programs, given as (path, arguments), side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda each: Made(*each), programs))


def run_plan(antiphon, text, *options):
    """Runs a plan; returns the exit status and all that was printed."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plan.json"
        path.write_text(text)
        done = subprocess.run(
            [antiphon, "run", str(path), *RUN, *options], capture_output=True, text=True, timeout=TIME_LIMIT
        )
    return done.returncode, done.stdout + done.stderr


class Stages(unittest.TestCase):
    """One sub-test for each program."""

    def check(self, programs):
        antiphon, reason = command()
        for made in make_all(programs):
            with self.subTest(program=made.name):
                self.assertIsNotNone(made.plan, f"status {made.status}\n{made.errors}")
                if antiphon is None or made.name in RACES:
                    continue
                status, printed = run_plan(antiphon, made.text)
                if made.name in WRONG:
                    self.assertNotEqual(status, 0, printed)
                elif made.name in UNFLUSHED:
                    self.assertIn("is refuted: race: nothing orders", printed)
                    self.assertIn("the proxy, for rank", printed)
                    status, printed = run_plan(antiphon, made.text, "--no-verify")
                    self.assertEqual(status, 0, printed)
                else:
                    self.assertEqual(status, 0, printed)
        if antiphon is None:
            print(f"SKIP running the plans: {reason}", file=sys.stderr)
            self.skipTest(f"the plans were made, not run: {reason}")

    def stage(self, name):
        self.check([(path, ()) for path in sorted((PROGRAMS / name).glob("*.py"))])

    def test_current(self):
        self.check([(PROGRAMS / "current" / name, arguments) for name, arguments in sorted(CURRENT.items())])

    def test_middle(self):
        self.stage("middle")

    def test_oldest(self):
        self.stage("oldest")


class Surroundings(unittest.TestCase):
    """What the programs stand on: the names they import, and the command that compiles them."""

    NAMES = """AllGather AllReduce AllToAll ReduceScatter SendRecv Collective TestCollective CollectiveProgram Rank Buffer
        BufferType ChannelType MemoryChannel PortChannel SwitchChannel Channel Semaphore SyncType ReduceOperationType
        ThreadBlockGroup LoopIterationContext Loop Chunk AlgoSpec ReplicationPolicy JSON MSCCLPPProgram Json Check chunk
        rank""".split()

    def test_a_star_import_gives_every_name(self):
        source = f"from mscclpp.language import *\nprint(sorted(set({self.NAMES}) - set(globals())))"
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=TIME_LIMIT)
        self.assertEqual((done.stdout.strip(), done.stderr), ("[]", ""))

    def test_the_command_writes_what_a_program_prints(self):
        examples = ["current/alltoall_ring.py", "middle/alltoall_loop.py", "oldest/alltoall_scratch.py"]
        for made in make_all([(PROGRAMS / example, ()) for example in examples]):
            example = next(each for each in examples if each.endswith(made.name))
            with self.subTest(program=example), tempfile.TemporaryDirectory() as folder:
                self.assertIsNotNone(made.plan, made.errors)
                target = pathlib.Path(folder) / "plan.json"
                words = [sys.executable, "-m", "antiphon", "compile", str(PROGRAMS / example), "-o", str(target)]
                done = subprocess.run(words, capture_output=True, text=True, timeout=TIME_LIMIT)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(target.read_text()), made.plan)


class Defects(unittest.TestCase):
    """A published fault stays in its program's plan, and is the only difference from the corrected copy's."""

    def pair(self, name):
        paths = [PROGRAMS / "middle" / f"{name}{ending}.py" for ending in ("", "_corrected")]
        plans = make_all([(path, ()) for path in paths])
        for made in plans:
            self.assertIsNotNone(made.plan, made.errors)
            made.plan["name"] = name
        return [made.plan for made in plans]

    def test_a_loop_variable_that_leaks(self):
        faulty, corrected = self.pair("alltoall_leaked_variable")
        copies = [self.copies(plan) for plan in (faulty, corrected)]
        self.assertEqual(copies[0][0], [0, 2, 2])
        self.assertEqual(copies[1][0], [0, 1, 2])

    @staticmethod
    def copies(plan):
        """For each rank, where in the output its copies go, in order."""
        ops = [gpu["threadblocks"][0]["ops"] for gpu in plan["gpus"]]
        return [[op["dst_buff"][0]["index"] for op in each if op["name"] == "copy"] for each in ops]

    def test_a_semaphore_that_starts_at_one(self):
        faulty, corrected = self.pair("alltoall_semaphore_at_one")
        self.assertNotEqual(faulty, corrected)
        for gpu in faulty["gpus"]:
            self.assertEqual(gpu["semaphores"], [{"init_value": 1}])
            gpu["semaphores"] = [{"init_value": 0}]
        self.assertEqual(faulty, corrected)


if __name__ == "__main__":
    unittest.main()
