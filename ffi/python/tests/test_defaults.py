"""The algorithms that are shipped, over several nodes, and the plans that are installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import on_ranks

from antiphon import ExecutionPlan, Executor
from antiphon.__main__ import main
from antiphon.default_algos import allgather_multi_nodes, allreduce_multi_nodes, reducescatter_multi_nodes
from antiphon.dsl import jit, presets
from antiphon.language import (
    AlgoSpec,
    AllGather,
    AllReduce,
    CollectiveProgram,
    MemoryChannel,
    Rank,
    ReduceScatter,
    SyncType,
)

COMMAND = os.environ.get("ANTIPHON_COMMAND")


def spec(collective, nodes, per_node, **more):
    given = {"use_double_scratch_buffer": True, **more}
    return AlgoSpec("several", collective, per_node, nodes * per_node, collective.inplace, 1, "LL", **given)


# (function, collective of so many ranks, nodes, ranks of a node, blocks in a group)
CASES = {
    "allreduce": (allreduce_multi_nodes, lambda n: AllReduce(n, 1, True), 2, 2, 1),
    "allreduce by groups": (allreduce_multi_nodes, lambda n: AllReduce(n, 1, True), 2, 3, 2),
    "allreduce of three nodes": (allreduce_multi_nodes, lambda n: AllReduce(n, 1, True), 3, 2, 1),
    "allgather": (allgather_multi_nodes, lambda n: AllGather(n, 1, True), 2, 2, None),
    "allgather out of place": (allgather_multi_nodes, lambda n: AllGather(n, 1, False), 3, 2, None),
    "allgather of nodes of one": (allgather_multi_nodes, lambda n: AllGather(n, 1, True), 3, 1, None),
    "allgather of one node": (allgather_multi_nodes, lambda n: AllGather(n, 1, True), 1, 4, None),
    "allgather of one node out of place": (allgather_multi_nodes, lambda n: AllGather(n, 1, False), 1, 4, None),
    "reducescatter": (reducescatter_multi_nodes, lambda n: ReduceScatter(n, 1, True), 2, 2, 1),
    "reducescatter by groups": (reducescatter_multi_nodes, lambda n: ReduceScatter(n, 1, True), 2, 3, 2),
    "reducescatter of one node": (reducescatter_multi_nodes, lambda n: ReduceScatter(n, 1, True), 1, 4, 2),
    "reducescatter of nodes of one": (reducescatter_multi_nodes, lambda n: ReduceScatter(n, 1, True), 3, 1, 1),
}


def program(case, **more):
    function, collective, nodes, per_node, group = case
    size = [] if group is None else [group]
    return function(spec(collective(nodes * per_node), nodes, per_node, **more), *size)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_they_keep_their_promise(case):
    program(case).check()


@pytest.mark.skipif(COMMAND is None, reason="ANTIPHON_COMMAND names the command that runs plans")
@pytest.mark.parametrize("auto_sync", [True, False], ids=["synchronised", "as written"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_they_are_proven_and_run_right(case, auto_sync, tmp_path):
    path = tmp_path / "plan.json"
    program(case, auto_sync=auto_sync).write(path, indent=None)
    proof = subprocess.run([COMMAND, "plan", "verify", path], capture_output=True, text=True, timeout=300)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    run = [COMMAND, "run", path, "--nodes", str(case[2]), "--threads", "-b", "192", "-e", "48K", "-f", "16", "-n", "2", "-w", "1", "--json"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["wrong"] for row in json.loads(done.stdout)["rows"]] == [0, 0, 0]


@pytest.mark.parametrize("case", [case for case in CASES if "one node" in case])
def test_those_of_one_node_are_proven(case, tmp_path):
    program(CASES[case]).write(tmp_path / "plan.json")

    def body(comm):
        executor = Executor(comm)
        loaded = executor.load(ExecutionPlan(tmp_path / "plan.json", comm.rank))
        every = np.arange(64, dtype="int32")
        own = slice(comm.rank * 16, (comm.rank + 1) * 16)
        if case.startswith("reducescatter"):
            whole = every * (comm.rank + 1)
            executor.run(loaded, whole, whole[own])
            right = (whole[own] == every[own] * 10).all()
        else:
            whole = np.zeros(64, "int32")
            whole[own] = every[own]
            executor.run(loaded, whole[own] if "out of place" not in case else every[own].copy(), whole)
            right = (whole == every).all()
        return loaded.verdict(), bool(right)

    assert on_ranks(4, body) == [("proven", True)] * 4


def test_the_allreduce_keeps_its_shape_without_dependency_syncs():
    plan = json.loads(program(CASES["allreduce by groups"], auto_sync=False).to_json())
    gpu = plan["gpus"][0]
    assert (gpu["input_chunks"], gpu["scratch_chunks"], len(gpu["threadblocks"])) == (6, 2 * 6 + 4, 5)
    kinds = [[op["name"] for op in block["ops"]] for block in gpu["threadblocks"]]
    assert kinds == [["barrier", "ppkt"]] + 4 * [["ppkt", "recpkt", "barrier", "recspkt", "upkt"]]


WRONG = {
    "another collective": (lambda: allgather_multi_nodes(spec(AllReduce(4, 1, True), 2, 2)), "allowed AllGather"),
    "another protocol": (
        lambda: allgather_multi_nodes(AlgoSpec("s", AllGather(4, 1, True), 2, 4, True, 1, "Simple")),
        "allowed LL",
    ),
    "ranks left over": (
        lambda: allgather_multi_nodes(AlgoSpec("s", AllGather(5, 1, True), 2, 5, True, 1, "LL")),
        "saw 5 ranks, 2 of them on a node",
    ),
    "one node": (lambda: allreduce_multi_nodes(spec(AllReduce(4, 1, True), 1, 4)), "two or more nodes"),
    "one rank": (lambda: allgather_multi_nodes(spec(AllGather(1, 1, True), 1, 1)), "two or more in all"),
    "nodes of one": (lambda: allreduce_multi_nodes(spec(AllReduce(2, 1, True), 2, 1)), "saw 1 rank on a node"),
    "more chunks": (lambda: allgather_multi_nodes(spec(AllGather(4, 2, True), 2, 2)), "saw chunk_factor 2"),
    "out of place": (lambda: reducescatter_multi_nodes(spec(ReduceScatter(4, 1, False), 2, 2)), "allowed one in place"),
    "two places": (
        lambda: allgather_multi_nodes(AlgoSpec("s", AllGather(4, 1, True), 2, 4, False, 1, "LL")),
        "allowed both alike",
    ),
    "no blocks": (lambda: allreduce_multi_nodes(spec(AllReduce(4, 1, True), 2, 2), 0), "thread_block_group_size 0"),
}


@pytest.mark.parametrize(("call", "text"), WRONG.values(), ids=WRONG)
def test_what_they_are_not_made_for_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_they_compile_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))
    given = {"name": "by name", "collective": "allreduce", "world_size": 4, "nranks_per_node": 2, "protocol": "LL"}
    handle = jit.compile(algo=presets.allreduce_multi_nodes, **given, thread_block_group_size=2)
    assert (handle.name, handle.constraint.n_ranks_per_node) == ("by name", 2)
    from mscclpp.default_algos.allreduce_multi_nodes import allreduce_multi_nodes as aliased

    assert aliased is presets.allreduce_multi_nodes is allreduce_multi_nodes


SIZES = {
    "allreduce_2nodes_1K_64K": (16, 1 << 10, 64 << 10, 8),
    "allreduce_2nodes_128K_2M": (16, 128 << 10, 2 << 20, 29),
    "allreduce_4nodes_1K_64K": (32, 1 << 10, 64 << 10, 8),
    "allreduce_4nodes_128K_2M": (32, 128 << 10, 2 << 20, 29),
}


def test_the_default_plans_are_those_of_the_format():
    assert set(presets.DEFAULTS) == set(SIZES)
    for name, (ranks, least, most, blocks) in SIZES.items():
        plan = json.loads(presets.DEFAULTS[name].program().to_json())
        found = (len(plan["gpus"]), plan["min_message_size"], plan["max_message_size"], len(plan["gpus"][0]["threadblocks"]))
        assert (plan["name"], *found) == (name, ranks, least, most, blocks)
        assert plan["inplace"] and plan["reuse_resources"] and plan["use_double_scratch_buffer"]
        assert (plan["protocol"], plan["num_threads_per_block"]) == ("LL", 1024)


@pytest.mark.skipif(COMMAND is None, reason="ANTIPHON_COMMAND names the command that proves plans")
@pytest.mark.parametrize("name", SIZES)
def test_the_default_plans_are_proven(name, tmp_path):
    path = tmp_path / "plan.json"
    presets.DEFAULTS[name].program().write(path, indent=None)
    proof = subprocess.run([COMMAND, "plan", "verify", path], capture_output=True, text=True, timeout=300)
    assert proof.returncode == 0, proof.stdout + proof.stderr


@pytest.mark.parametrize("command", ["install", "--install"])
def test_install_writes_them_into_the_cache(command, tmp_path, monkeypatch, capsys):
    pytest.importorskip("antiphon._library").library()
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert main([command, "--ranks", "3"]) == 0
        files = sorted((tmp_path / "default").iterdir())
        names = [str(tmp_path / "default" / f"{name}.json") for name in SIZES]
        assert capsys.readouterr().out.splitlines() == [*names, f"{tmp_path / 'default'}: the built-in algorithms"]
    plans = {file.stem: json.loads(file.read_text()) for file in files}
    assert set(SIZES) < set(plans) and all(plan["name"] == name for name, plan in plans.items())
    # And the built-in algorithms of each collective.
    built_in = [plan for name, plan in plans.items() if name not in SIZES]
    assert {len(plan["gpus"]) for plan in built_in} == {3}
    assert {"allreduce", "allgather", "alltoall", "reducescatter"} < {plan["collective"] for plan in built_in}
    for wrong, words in {
        ("--name", "x"): "--name is for one file", ("--ranks", "2", "plan.json"): "--ranks and --nodes are for the default plans",
    }.items():  # fmt: skip
        assert main([command, *wrong]) == 2 and words in capsys.readouterr().err
    for wrong in (["--ranks", "0"], ["--ranks", "-1"], ["--nodes", "0"], ["--ranks", "3", "--nodes", "2"]):
        assert main([command, *wrong]) == 1 and "cannot" in capsys.readouterr().err, wrong


@pytest.mark.parametrize("line", [["mscclpp", "--install"], ["antiphon", "install"]])
def test_install_is_a_command_of_a_shell(line, tmp_path):
    pytest.importorskip("antiphon._library").library()
    # What installing the package adds beside it, without which Python does not know the other name.
    beside = Path(__file__).parents[1] / "antiphon.data" / "purelib"
    (tmp_path / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(beside)!r})\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "ANTIPHON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", *line], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    files = [str(tmp_path / "default" / f"{name}.json") for name in SIZES]
    assert done.stdout.splitlines()[:-1] == files and all(Path(file).exists() for file in files)


def test_a_plan_that_is_installed_is_in_the_cache_until_it_is_removed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("antiphon._library").library()
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))
    with CollectiveProgram("mine", AllGather(2, 1, True), 2) as program:
        channels = [MemoryChannel(1 - rank, rank) for rank in range(2)]
        for rank, channel in enumerate(channels):
            buffer = Rank(rank).get_output_buffer()
            channel.signal(tb=0, relaxed=True)
            channel.wait(tb=0, data_sync=SyncType.after, relaxed=True)
            channel.put(Rank(1 - rank).get_output_buffer()[rank : rank + 1], buffer[rank : rank + 1], tb=0)
            channel.signal(tb=0, data_sync=SyncType.before)
            channel.wait(tb=0, data_sync=SyncType.after)
    path = tmp_path / "mine.json"
    program.write(path)
    installed = tmp_path / "installed" / "yours.json"
    assert main(["install", str(path), "--name", "yours", "--max", "4096", "--tag", "t"]) == 0
    assert capsys.readouterr().out == f"installed {path}\n"
    said = json.loads(installed.read_text())["antiphon_installed"]
    assert (said["name"], said["max_bytes"], said["tags"]) == ("yours", 4096, ["t"])
    assert main(["install", str(tmp_path / "none.json")]) == 1 and "none.json" in capsys.readouterr().err
    assert main(["install", str(path), "--name", "allreduce_hub"]) == 1
    assert "a built-in algorithm" in capsys.readouterr().err
    for wrong, words in {
        "--min=-1": "smallest message -1", "--max=18446744073709551616": "largest message 18446744073709551616",
        "--ranks-per-node=-1": "ranks per node -1", "--root=-1": "root -1",
    }.items():  # fmt: skip
        assert main(["install", str(path), wrong]) == 1 and f"cannot use {words}: allowed 0 to" in capsys.readouterr().err
    assert main(["install", "--remove", "yours"]) == 0 and not installed.exists()
    assert main(["install", "--remove", "yours"]) == 1 and "`yours`" in capsys.readouterr().err


def test_install_says_where_it_cannot_write(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path / "file"))
    assert main(["install"]) == 1
    assert "cannot install the default plans in" in capsys.readouterr().err
