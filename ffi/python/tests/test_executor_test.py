"""`python -m antiphon.executor_test`: what it prints, and that it notices what is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import LIMIT, outcomes, processes

from antiphon import executor_test
from antiphon.executor_test import Job, Numbers, expected, size
from antiphon.language import CollectiveProgram, MemoryChannel, Rank, SendRecv
from antiphon.presets import allreduce_nvls

PLANS = Path(__file__).parents[3] / "examples" / "plans"
QUICK = ["--n_iters", "3", "--n_graph_iters", "2"]


def command(*arguments, folder=None):
    line = [sys.executable, "-m", "antiphon.executor_test", *map(str, arguments)]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)


LINE = re.compile(
    r"Rank: (\d) Execution time: \d+\.\d{3} us, data size: (\d+) bytes data type: (\w+) "
    r"bandwidth: \d+\.\d\d GB/s, packet type: (\w+)"
)

CASES = {
    "allreduce": ("allreduce_two_shot_packets_4", ["--size", "64K", "--packet_type", "LL8"], 65536, "float16", "LL8"),
    "allreduce in place": (
        "allreduce_zero_copy_4", ["--size", "4K", "--in_place", "--dtype", "bfloat16"], 4096, "bfloat16", "LL16"
    ),
    "allgather": ("allgather_zero_copy_4", ["--size", "16K", "--dtype", "int32"], 16384, "int32", "LL16"),
    "allgather in place": (
        "allgather_zero_copy_4", ["--size", "16K", "--in_place", "--dtype", "int32"], 16384, "int32", "LL16"
    ),
    "reducescatter": ("reducescatter_packets_4", ["--size", "16K", "--dtype", "float32"], 4096, "float32", "LL16"),
    "reducescatter in place": (
        "reducescatter_zero_copy_4", ["--size", "16K", "--in_place", "--dtype", "float32"], 4096, "float32", "LL16"
    ),
    "alltoall": ("alltoall_packets_4", ["--size", "1K", "--dtype", "int32"], 1024, "int32", "LL16"),
    "sendrecv": ("sendrecv_zero_copy_2", ["--size", "1K"], 1024, "float16", "LL16"),
}


@pytest.mark.parametrize("case", CASES)
def test_plans_are_checked_and_timed(case):
    name, arguments, received, dtype, packets = CASES[case]
    done = command("-path", PLANS / f"{name}.json", *arguments, *QUICK)
    assert done.returncode == 0, done.stderr
    found = sorted(LINE.fullmatch(line).groups() for line in done.stdout.splitlines())
    assert found == [(str(rank), str(received), dtype, packets) for rank in range(len(found))]
    assert len(found) == (2 if case == "sendrecv" else 4)


def test_ranks_of_a_launcher(tmp_path):
    allreduce_nvls("nvls", 2).write(tmp_path / "nvls.json")
    line = ["-m", "antiphon", "executor_test", "--execution_plan_path", "nvls.json", "--size", "1K", "--in_place", *QUICK]
    assert all(LINE.fullmatch(out.strip()) for out in processes(2, line, tmp_path))


def each_rank(world, *arguments, code="import sys\nfrom antiphon.executor_test import main", folder):
    """The status of each rank, and what it says, which are started one by one, as launchers do."""
    script = f"{code}\nsys.exit(main(sys.argv[1:]))"
    return outcomes(world, ["-c", script, *map(str, arguments)], folder)


def test_wrong_numbers_of_one_rank_in_one_run_fail_on_all(tmp_path):
    """The plan is right, and rank 1 expects other numbers in the second of three runs."""
    code = """
import sys
from antiphon import executor_test
from antiphon.executor_test import main
right = executor_test.expected
executor_test.expected = lambda job, numbers, rank, turn: right(job, numbers, rank, turn) + (rank == 1 and turn == 1)
"""
    plan = PLANS / "sendrecv_zero_copy_2.json"
    ends = each_rank(2, "-path", plan, "--size", "1K", *QUICK, code=code, folder=tmp_path)
    wrong = ["Rank: 0 wrong elements: 0, on all ranks: 512\n", "Rank: 1 wrong elements: 512, on all ranks: 512\n"]
    assert ends == [(1, "", said) for said in wrong]


def test_a_sendrecv_in_groups(tmp_path):
    """Every rank hands on to the one after the next: right in two rings, and wrong in one."""
    with CollectiveProgram("groups", SendRecv(4, 1, False), 4) as program:
        to = [MemoryChannel((rank + 2) % 4, rank) for rank in range(4)]
        for rank, channel in enumerate(to):
            channel.put(Rank((rank + 2) % 4).get_output_buffer()[0:1], Rank(rank).get_input_buffer()[0:1], tb=0)
            channel.signal(tb=0)
            channel.wait(tb=0)
    program.write(tmp_path / "groups.json")
    job = ["-path", "groups.json", "--size", "1K", "--dtype", "int32", *QUICK]
    done = command(*job, "--split_mask", "0x1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(LINE.fullmatch(line)[1] for line in done.stdout.splitlines()) == ["0", "1", "2", "3"]
    done = command(*job, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.count("wrong elements") == 4, done.stderr


def test_a_plan_that_is_refuted_is_not_run(tmp_path):
    """A sendrecv that says it is an allreduce; unverified it runs, and its results are wrong."""
    text = (PLANS / "sendrecv_zero_copy_2.json").read_text().replace('"sendrecv"', '"allreduce"')
    (tmp_path / "wrong.json").write_text(text)
    done = command("-path", "wrong.json", "--size", "1K", *QUICK, folder=tmp_path)
    assert done.returncode == 1 and not done.stdout
    # Refused as soon as it is loaded: the verifier knows better.
    assert "PlanRefutedError" in done.stderr
    done = command("-path", "wrong.json", "--size", "1K", *QUICK, "--no-verify", folder=tmp_path)
    assert done.returncode == 1 and not done.stdout
    assert "Error" not in done.stderr and done.stderr.count("wrong elements") == 2, done.stderr


def test_numbers_off_by_one_are_wrong():
    for dtype in executor_test.TYPES:
        numbers = Numbers(dtype)
        job = Job("allreduce", 2, 64, dtype, False, 0)
        right = expected(job, numbers, 0, 1)
        got = numbers.store(right.astype("float32")) if dtype != "int32" else right.astype("int32")
        assert numbers.wrong(got, right, 2) == 0
        got[3] = numbers.load(got)[3] + 1 if dtype != "bfloat16" else 0
        assert numbers.wrong(got, right, 2) == 1
        first, second = numbers.fill(0, 1, 64), numbers.fill(1, 1, 64)
        assert (first != second).any() and (first != numbers.fill(0, 2, 64)).any()


def test_groups_of_a_sendrecv():
    assert [Job("sendrecv", 4, 64, "int32", False, 0).source(rank) for rank in range(4)] == [3, 0, 1, 2]
    assert [Job("sendrecv", 4, 64, "int32", False, 1).source(rank) for rank in range(4)] == [2, 3, 0, 1]


@pytest.mark.parametrize("text", ["1K", "1024", "1k"])
def test_sizes(text):
    assert size(text) == 1024
    assert (size("3M"), size("2G")) == (3 << 20, 2 << 30)


def test_masks_and_types_as_they_are_written():
    flags = executor_test.parser()
    plan = ["-path", "p.json", "--size", "1K"]
    for text, mask in {"0x10": 16, "10": 10, "0b11": 3, "3": 3}.items():
        assert flags.parse_args([*plan, "--split_mask", text]).split_mask == mask
    for text, dtype in {"bf16": "bfloat16", "FP16": "float16", "Float32": "float32", "int32": "int32"}.items():
        assert flags.parse_args([*plan, "--dtype", text]).dtype == dtype


REFUSED = {
    "a mask that is none": (["--split_mask", "0x4"], "2^k - 1"),
    "a mask that does not divide": (["--split_mask", "0x7"], "2^k - 1"),
    "no whole elements": (["--size", "1001"], "a multiple of 2"),
    "no size": (["--size", "-4"], "--size"),
    "a type that is none": (["--dtype", "float8"], "--dtype"),
    "no runs": (["--n_iters", "0"], "less than once"),
}


@pytest.mark.parametrize(("arguments", "text"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused(arguments, text):
    done = command("-path", PLANS / "allreduce_zero_copy_4.json", "--size", "1K", *arguments)
    assert done.returncode == 2 and text in done.stderr, done.stderr


def test_a_file_that_is_not_there():
    done = command("-path", "nowhere.json", "--size", "1K")
    assert done.returncode == 1 and "nowhere.json" in done.stderr
