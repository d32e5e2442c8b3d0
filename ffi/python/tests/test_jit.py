"""The names by which programs make plans to run, and the registry: what works, and what says that it cannot yet."""

import json
import os

import pytest

import antiphon
from antiphon import utils
from antiphon.dsl import jit, presets
from antiphon.language import (
    AlgoSpec,
    AllGather,
    AllReduce,
    Buffer,
    CollectiveProgram,
    JSON,
    MemoryChannel,
    MSCCLPPProgram,
    Rank,
    chunk,
)
from antiphon.plan import Constraint, DataType, ExecutionPlan, ExecutionPlanRegistry, Executor, Request


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("ANTIPHON_CACHE_DIR", str(tmp_path))
    return tmp_path


def body(ranks):
    for me in range(ranks):
        for peer in range(ranks):
            if me != peer:
                channel = MemoryChannel(peer, me)
                piece = slice(me, me + 1)
                channel.put(Rank(peer).get_output_buffer()[piece], Rank(me).get_output_buffer()[piece], tb=0)
                channel.signal(tb=0)
                channel.wait(tb=0)


def gather(name, num_gpus):
    with CollectiveProgram(name, AllGather(num_gpus, 1, True), num_gpus) as program:
        body(num_gpus)
    return program


def content(handle):
    with open(handle.plan.path, encoding="utf-8") as file:
        return json.load(file)


GIVEN = {
    "name": "g",
    "collective": "allgather",
    "nranks_per_node": 2,
    "world_size": 2,
    "instances": 2,
    "protocol": "Simple",
    "num_threads_per_block": 512,
    "min_msg_size": 1 << 10,
    "max_msg_size": 1 << 20,
    "tags": {"ring"},
}


def test_a_handle_has_what_was_given(cache):
    handle = jit.compile(algo=gather, **GIVEN)
    plan = content(handle)
    assert (handle.name, handle.tags, handle.constraint) == ("g", {"ring"}, Constraint(2, 2))
    assert (handle.plan.collective, handle.plan.min_message_size, handle.plan.max_message_size) == (
        "allgather", 1 << 10, 1 << 20,
    )  # fmt: skip
    assert (plan["num_threads_per_block"], len(plan["gpus"][0]["threadblocks"])) == (512, 2)
    assert [path.name for path in cache.iterdir()] == [f"{handle.id}.json"]
    # The same content is the same plan; another one is not.
    assert jit.compile(algo=gather, **GIVEN) == handle
    assert jit.compile(algo=gather, **{**GIVEN, "instances": 1}).id != handle.id
    assert jit.compile(algo=gather, **{**GIVEN, "tags": {"line"}}).id != handle.id


def test_handles_and_requests_are_keys():
    handle = jit.compile(algo=gather, name="g", num_gpus=2, tags={"mine": 2})
    same = jit.compile(algo=gather, name="g", num_gpus=2, tags={"mine": 2})
    other = jit.compile(algo=gather, name="g", num_gpus=2, tags={"mine"})
    assert {handle: 1, other: 2, same: 3} == {handle: 3, other: 2}
    asked = Request("allgather", 2, 2, 0, 0, 8, hints={"root": 1})
    assert {asked: 1}[Request("allgather", 2, 2, 0, 0, 8, hints={"root": 1})] == 1
    assert Request("allgather", 2, 2, 0, 0, 8) not in {asked}


def test_whom_the_umask_lets_reads_what_is_kept(cache):
    """In a folder that several users share."""
    before = os.umask(0o027)
    try:
        handle = jit.compile(algo=gather, name="shared", num_gpus=2)
    finally:
        os.umask(before)
    assert os.stat(handle.plan.path).st_mode & 0o777 == 0o640


def test_what_cannot_be_kept_leaves_nothing(cache, monkeypatch):
    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        jit.compile(algo=gather, name="lost", num_gpus=2)
    assert list(cache.iterdir()) == []


def test_what_the_program_says_wins():
    def algo(nranks):
        with CollectiveProgram(
            "own", AllGather(nranks, 1, True), nranks, 1, num_threads_per_block=64, max_message_size=2048
        ) as program:
            body(nranks)
        return program

    handle = jit.compile(algo=algo, **GIVEN)
    plan = content(handle)
    assert (handle.name, plan["num_threads_per_block"], handle.plan.max_message_size) == ("own", 64, 2048)
    assert (handle.plan.min_message_size, len(plan["gpus"][0]["threadblocks"])) == (1 << 10, 1)


@pytest.mark.parametrize("name", ["world_size", "num_ranks", "num_gpus", "gpu_size", "nranks"])
def test_aliases_of_the_number_of_ranks(name):
    seen = []
    source = f"def algo({name}, gpus_per_node, min_message_size, max_msg_size, instances, protocol, extra, other=5):\n"
    names: dict = {"seen": seen, "gather": gather}
    exec(f"{source}    seen.append(dict(locals()))\n    return gather('g', {name})", names)
    jit.compile(algo=names["algo"], **GIVEN, extra=7)
    assert seen == [
        {name: 2, "gpus_per_node": 2, "min_message_size": 1 << 10, "max_msg_size": 1 << 20, "instances": 2,
         "protocol": "Simple", "extra": 7, "other": 5}
    ]  # fmt: skip


def test_an_algo_spec():
    def algo(it: AlgoSpec):
        assert (it.name, it.in_place, it.tags, it.instances) == ("g", True, {"ring": 1}, 2)
        with CollectiveProgram.from_spec(it) as program:
            body(it.world_size)
        return program

    assert jit.compile(algo=algo, **GIVEN) == jit.compile(algo=gather, **GIVEN)
    spec = AlgoSpec("s", AllGather(2, 1, True), 2, 2, True, 1, "Simple")
    assert jit.compile(algo=lambda spec: gather(spec.name, spec.world_size), algo_spec=spec).name == "s"


def test_what_a_spec_says_of_its_plan():
    def algo(spec):
        return gather(spec.name, spec.world_size)

    spec = AlgoSpec("s", AllGather(4, 1, True), 2, 4, True, 1, "Simple", tags={"nvls": 1})
    handle = jit.compile(algo=algo, algo_spec=spec)
    assert (handle.tags, handle.constraint) == ({"nvls": 1}, Constraint(4, 2))
    given = jit.compile(algo=algo, algo_spec=spec, nranks_per_node=4, tags={"ring"})
    assert (given.tags, given.constraint) == ({"ring"}, Constraint(4, 4))
    assert jit.compile(algo=algo, algo_spec=spec, tags=()).tags == set()


def test_the_entry_point_of_the_formats_own_package():
    import mscclpp

    def algo(described, extra=None):
        seen.append(extra)
        return gather(described.name, described.world_size)

    seen = []
    spec = AlgoSpec("s", AllGather(2, 1, True), 2, 2, True, 1, "Simple", tags={"nvls": 1})
    handle = mscclpp.compile(algo, spec, 1, extra=7)
    assert (handle.name, handle.tags, handle.plan.rank, seen) == ("s", {"nvls": 1}, 1, [7])
    assert handle == mscclpp.compile(algo=algo, algo_spec=spec, rank=1) == jit.compile(algo, algo_spec=spec, rank=1)
    with pytest.raises(ValueError, match="on rank 2: allowed 0 to 1"):
        mscclpp.compile(algo, spec, 2)


def test_its_functions_get_the_spec_and_what_is_given_as_it_is():
    seen = []

    def made(spec):
        return gather(spec.name, spec.world_size)

    def named(name, /, *rest, **options):
        seen.append((name, rest, options))
        return made(name)

    def first(name, num_ranks=0, depth=1):
        seen.append((name, num_ranks, depth))
        return made(name)

    def several(*specs, tags):
        seen.append((specs, tags))
        return made(*specs)

    spec = AlgoSpec("s", AllGather(4, 1, True), 2, 4, True, 1, "Simple", tags={"nvls": 1})
    options = {"num_ranks": 4, "instances": 3, "name": "n", "tags": {"mine"}, "collective": None}
    handles = [
        antiphon.compile(named, spec, 0, **options),
        antiphon.compile(first, spec, num_ranks=4),
        antiphon.compile(several, spec, tags=7),
    ]
    assert seen == [(spec, (), options), (spec, 4, 1), ((spec,), 7)]
    assert all((handle.tags, handle.constraint) == ({"nvls": 1}, Constraint(4, 2)) for handle in handles)
    # What it does not take is not dropped.
    with pytest.raises(TypeError, match="instances"):
        antiphon.compile(first, spec, instances=2)
    # Without a spec the aliases count.
    assert antiphon.compile(gather, name="g", world_size=2) == jit.compile(gather, name="g", num_gpus=2)


def test_specs_without_a_name_for_them():
    def alone(spec, /):
        return gather(spec.name, spec.world_size)

    spec = AlgoSpec("s", AllGather(2, 1, True), 2, 2, True, 1, "Simple")
    assert jit.compile(algo=alone, algo_spec=spec) == jit.compile(algo=lambda *specs: alone(*specs), algo_spec=spec)


def test_text_and_the_oldest_stage():
    def text():
        with CollectiveProgram("t", AllGather(2, 1, True), 2):
            body(2)
            return JSON()

    def oldest(num_ranks):
        with MSCCLPPProgram("o", AllGather(num_ranks, 1, True), num_ranks) as program:
            for me in range(num_ranks):
                chunk(me, Buffer.output, me).put(1 - me, sendtb=0)
        return program

    assert jit.compile(algo=text).name == "t"
    plan = content(jit.compile(algo=oldest, **GIVEN))
    assert (plan["num_threads_per_block"], plan["gpus"][0]["output_chunks"]) == (512, 4)


def test_presets():
    handle = jit.compile(algo=presets.allreduce_nvls, name="nvls", world_size=4, tags={"nvls"})
    ops = [op["name"] for op in content(handle)["gpus"][0]["threadblocks"][0]["ops"]]
    assert "glres" in ops and handle.constraint.world_size == 4


REFUSALS = {
    "no function": (lambda: jit.compile(algo=3), TypeError, "a function"),
    "none with a spec either": (lambda: antiphon.compile(3, None), ValueError, "a function"),
    "a parameter too few": (lambda: jit.compile(algo=gather, name="g"), TypeError, "it needs 'num_gpus'"),
    "a parameter too many": (lambda: jit.compile(algo=gather, **GIVEN, depth=2), TypeError, "takes no depth"),
    "two values": (lambda: jit.compile(algo=gather, **GIVEN, num_ranks=3), TypeError, "two values of world_size"),
    "no program": (lambda: jit.compile(algo=lambda: None), TypeError, "allowed its program"),
    "no spec": (lambda: jit.compile(algo=lambda spec: None, name="g"), TypeError, "collective, world_size missing"),
    "no collective": (
        lambda: jit.compile(algo=lambda spec: None, **{**GIVEN, "collective": "own"}), ValueError, "a Collective"
    ),
    "executing over nothing": (lambda: Executor(None), TypeError, "allowed a Communicator"),
    "a group of nothing": (lambda: antiphon.CommGroup(), RuntimeError, "no source"),
    "a group of two": (lambda: antiphon.CommGroup(3, 4), RuntimeError, "saw 2 sources"),
    "a group without a rank": (lambda: antiphon.CommGroup(interfaceIpPortTrio="x:1:2"), RuntimeError, "give rank"),
    "selecting for half a call": (
        lambda: ExecutionPlanRegistry().select(collective="allreduce"), TypeError, "world_size"
    ),
    "registering anything": (lambda: antiphon.plan.register("plan"), TypeError, "PlanHandle"),
    "a type of elements": (lambda: utils.dtype_to_mscclpp_dtype("complex64"), ValueError, "float16"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS.values(), ids=REFUSALS)
def test_what_cannot_be_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_the_registry_is_one():
    handle = jit.compile(algo=gather, **GIVEN)
    antiphon.plan.register(handle)
    antiphon.plan.set_selector(lambda plans, request: None)
    registry = antiphon.ExecutionPlanRegistry()
    assert registry is ExecutionPlanRegistry() and registry.get(handle.id) is handle and registry.get("none") is None
    # No call of another test is to be served so.
    antiphon.plan.set_selector(None)
    antiphon.plan.unregister(handle)
    assert registry.get(handle.id) is None


def test_plans_of_files(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(gather("p", 2).to_json())
    assert ExecutionPlan(path, 1).name == "p"
    with pytest.raises(ValueError, match="allowed 0 to 1"):
        ExecutionPlan(str(path), 2)
    path.write_text("[]")
    with pytest.raises(ValueError, match="no ranks"):
        ExecutionPlan(path, 0)


def test_where_plans_are_kept(monkeypatch, tmp_path):
    folder = jit.cache_folder
    assert folder() == tmp_path
    monkeypatch.delenv("ANTIPHON_CACHE_DIR")
    monkeypatch.setenv("MSCCLPP_CACHE_DIR", str(tmp_path))
    assert folder() == tmp_path / "antiphon"
    monkeypatch.delenv("MSCCLPP_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "antiphon"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder() == tmp_path / ".cache" / "antiphon"


def test_types_of_elements():
    class Torch:
        def __str__(self):
            return "torch.bfloat16"

    assert utils.torch_dtype_to_mscclpp_dtype(Torch()) is DataType.bfloat16
    assert utils.dtype_to_mscclpp_dtype("float16") is DataType.float16
    assert {"float16", "bfloat16", "float32", "int32", "uint8"} <= set(DataType.__members__)
    assert AllReduce(2, 1, True).num_ranks_per_node == -1
