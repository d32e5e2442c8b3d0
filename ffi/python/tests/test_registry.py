"""The registry of plans: what it keeps, what it chooses for a call, and that calls by name of the process are served so."""

import json
import threading
from pathlib import Path

import pytest
from ranks import on_ranks

from antiphon import Op, _registry, plan
from antiphon._registry import listed
from antiphon.errors import AntiphonError, InvalidArgumentError, InvalidPlanError, MismatchError, PlanRefutedError
from antiphon.language import CollectiveProgram, Gather, MemoryChannel, Rank
from antiphon.plan import Constraint, DataType, ExecutionPlan, ExecutionPlanRegistry, PlanHandle

np = pytest.importorskip("numpy")

PLANS = Path(__file__).parents[3] / "examples" / "plans"
WORLD = 4
COUNT = 1 << 10
CALL = {
    "collective": "allreduce",
    "world_size": WORLD,
    "n_ranks_per_node": WORLD,
    "send_buffer": 0,
    "recv_buffer": 0,
    "message_size": 1 << 20,
}


@pytest.fixture
def registry():
    """The process's, without what other tests registered."""
    the = ExecutionPlanRegistry()
    for id in list(the._plans):
        the.unregister_plan(id)
    yield the
    for id in list(the._plans):
        the.unregister_plan(id)
    the.set_selector(None)
    the.set_default_selector(None)
    assert listed() == []


def handle(name, constraint=Constraint(), tags=()):
    return PlanHandle(f"{name} {constraint}", name, ExecutionPlan(PLANS / f"{name}.json"), set(tags), constraint)


def keep(tmp_path, only=None, **more):
    """An "allreduce" in which every rank, or only this one, keeps what it has: who is served by it can tell."""
    rank = {
        "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0, "channels": [], "remote_buffers": [], "semaphores": [],
        "threadblocks": [{"id": 0, "channels": [], "remote_buffer_refs": [], "ops": [{
            "name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
            "dst_buff": [{"type": "o", "index": 0, "size": 1}]}]}],
    }  # fmt: skip
    text = {
        "name": "keep", "collective": "allreduce", "protocol": "Simple", "inplace": False, "reuse_resources": False,
        "gpus": [{"id": id, **rank, **({} if only in (None, id) else {"threadblocks": []})} for id in range(WORLD)],
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False, "buffer_alignment": 16, "min_message_size": 0, "max_message_size": 1 << 30,
        **more,
    }  # fmt: skip
    path = tmp_path / f"{text['name']}.json"
    path.write_text(json.dumps(text))
    return PlanHandle(f"{text['name']}-1", text["name"], ExecutionPlan(path))


def sums(communicator, count=COUNT, dtype="float32"):
    """What every rank gets of an allreduce of 1, 2, 3 and 4, out of place."""
    out = np.zeros(count, dtype)
    communicator.all_reduce(np.full(count, communicator.rank + 1, dtype), out)
    assert (out == out[0]).all()
    return float(out[0])


def failing(communicator):
    """The error of an allreduce."""
    with pytest.raises(AntiphonError) as raised:
        sums(communicator)
    return raised.value


def changed(tmp_path, name, **more):
    """A plan of the examples that says something else."""
    text = {**json.loads((PLANS / f"{name}.json").read_text()), **more}
    path = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}.json"
    path.write_text(json.dumps(text))
    return PlanHandle(path.stem, name, ExecutionPlan(path))


def test_without_an_answer_the_last_that_fits_is_chosen(registry, tmp_path):
    ring, copy = handle("allreduce_ring_4"), handle("allreduce_zero_copy_4")
    others = [
        handle("allreduce_zero_copy_8"),
        handle("allgather_zero_copy_4"),
        handle("allreduce_ring_4", Constraint(n_ranks_per_node=2)),
    ]
    for one in (copy, ring, *others):
        registry.register_plan(one)
    assert registry.select(**CALL) is ring
    registry.register_plan(copy)
    assert registry.select(**CALL) is copy
    # Both join ranks by memory, which are on two nodes here.
    assert registry.select(**{**CALL, "n_ranks_per_node": 2}) is None
    assert registry.select(**{**CALL, "world_size": 3}) is None
    assert registry.select(**{**CALL, "collective": "reduce"}) is None
    assert registry.select(**{**CALL, "collective": "of mine"}) is None
    registry.register_plan(changed(tmp_path, "allreduce_ring_4", min_message_size=2 << 20))
    assert registry.select(**CALL) is copy


def test_what_is_selected_serves_such_a_call(registry, tmp_path):
    """Also where what a plan does, and not what it says of itself, is against it."""
    ring = handle("allreduce_ring_4")
    for one in (ring, changed(tmp_path, "alltoall_zero_copy_4", collective="alltoallv")):
        registry.register_plan(one)
    assert registry.select(**CALL) is ring and registry.select(**CALL, dtype=DataType.float16) is ring
    # A part of an element; the order of a ring's sums; equal blocks, where each call brings its sizes.
    assert registry.select(**{**CALL, "message_size": 1022}) is None
    assert registry.select(**CALL, hints={"reproducible": True}) is None
    assert registry.select(**{**CALL, "collective": "alltoallv", "message_size": 0}) is None
    one_op = changed(tmp_path, "allreduce_zero_copy_4")
    text = one_op.plan._bytes.replace(b'"name": "rres"', b'"name": "rres", "reduce_op": "max"')
    assert text != one_op.plan._bytes
    Path(one_op.plan.path).write_bytes(text)
    largest = PlanHandle("largest", "largest", ExecutionPlan(one_op.plan.path))
    registry.register_plan(largest)
    assert registry.select(**CALL) is ring and registry.select(**CALL, hints={"op": Op.max}) is largest
    with pytest.raises(InvalidArgumentError, match="message_size -1"):
        registry.select(**{**CALL, "message_size": -1})
    with pytest.raises(InvalidArgumentError, match="on a node"):
        registry.select(**{**CALL, "n_ranks_per_node": 0})
    # Three on one node and one on another count as a node each, between which no memory is shared.
    assert registry.select(**{**CALL, "n_ranks_per_node": 3}) is None


def test_tags_are_asked_for_in_hints(registry, monkeypatch):
    ring = handle("allreduce_ring_4", tags=["ring"])
    registry.register_plan(ring)
    assert registry.select(**CALL, hints={"tags": ["ring"]}) is ring
    assert registry.select(**CALL, hints={"tags": ["star"]}) is None
    monkeypatch.setenv("ANTIPHON_TAGS", "star")
    assert registry.select(**CALL) is None and registry.select(**CALL, hints={"tags": []}) is ring


@pytest.mark.parametrize("said", ["1", "0", None])
def test_the_environment_asks_for_one_order_of_sums(registry, monkeypatch, said):
    """Round the ring, which is registered, the order depends on where an element lies."""
    if said is None:
        monkeypatch.delenv("ANTIPHON_REPRODUCIBLE", raising=False)
    else:
        monkeypatch.setenv("ANTIPHON_REPRODUCIBLE", said)
    ring = handle("allreduce_ring_4")
    registry.register_plan(ring)
    tensors = np.random.default_rng(7).normal(size=(WORLD, 64)).astype("float32")

    def body(communicator):
        seen = set()
        for quarter in range(WORLD):
            bucket, out = np.zeros((2, WORLD, COUNT), "float32")
            bucket[quarter, :64] = tensors[communicator.rank]
            communicator.all_reduce(bucket, out)
            seen.add(out[quarter, :64].tobytes())
        return len(seen) == 1, f"{ring.id} (registered plan): is not reproducible" in communicator.explain("allreduce", out.nbytes)

    assert on_ranks(WORLD, body) == [(said == "1",) * 2] * WORLD
    assert registry.select(**CALL) is (None if said == "1" else ring)


def test_what_the_author_said_counts(registry, tmp_path):
    said = Constraint(WORLD, WORLD, (DataType.float32,), (Op.max,))
    one = handle("allreduce_ring_4", said)
    registry.register_plan(one)
    largest = {"op": Op.max}
    assert registry.select(**CALL, hints=largest) is one
    assert registry.select(**CALL, dtype=DataType.float32, hints=largest) is one
    assert registry.select(**CALL, dtype=DataType.float16, hints=largest) is None
    assert registry.select(**CALL) is None and registry.select(**CALL, hints={"op": Op.sum}) is None
    assert registry.select(**CALL, hints={**largest, "in_place": not one.plan.in_place}) is None


@pytest.mark.parametrize(
    ("collective", "send", "receive", "in_place"),
    [
        ("allreduce", 4096, 4096, True),
        ("allreduce", 4096, 8192, False),
        ("allreduce", 0, 0, None),
        ("allgather", 4096 + 3 * 1024, 4096, True),
        ("allgather", 4096 + 4 * 1024, 4096, False),
        ("allgather", 2048, 4096, False),
        ("reducescatter", 4096, 4096 + 512, True),
        ("reducescatter", 4096 + 512, 4096, False),
        ("broadcast", 4096, 4096, None),
    ],
)
def test_addresses_tell_whether_a_call_is_in_place(collective, send, receive, in_place):
    request = plan.Request(collective, 4, 4, send, receive, 1024)
    assert request._in_place() is in_place


def test_an_allgather_is_as_large_as_a_rank_s_part(registry, tmp_path):
    """A selector that was written for the format's own package says and is told so."""
    gather = changed(tmp_path, "allgather_zero_copy_4", min_message_size=WORLD * 4096, max_message_size=WORLD * 4096)
    registry.register_plan(gather)
    fits = [size for size in (1024, 4096, WORLD * 4096) if registry.select(**{**CALL, "collective": "allgather", "message_size": size})]
    assert fits == [4096]


def test_a_selector_is_told_how_large_a_rank_s_part_of_an_allgather_is(registry):
    asked = []
    registry.set_selector(lambda plans, request: asked.append((request.collective, request.message_size)))

    def body(communicator):
        own, every = np.ones(COUNT, "float32"), np.zeros(WORLD * COUNT, "float32")
        communicator.all_gather(own, every)
        communicator.reduce_scatter(every, own)

    on_ranks(WORLD, body)
    assert sorted(asked) == [("allgather", 4 * COUNT)] * WORLD + [("reducescatter", 4 * WORLD * COUNT)] * WORLD


def test_plans_for_the_other_place_do_not_fit(registry, tmp_path):
    out, inside = keep(tmp_path), keep(tmp_path, name="inside", inplace=True)
    for one in (out, inside):
        registry.register_plan(one)
    assert registry.select(**{**CALL, "send_buffer": 4096, "recv_buffer": 4096}) is inside
    assert registry.select(**{**CALL, "send_buffer": 4096, "recv_buffer": 1 << 30}) is out


def test_selectors_go_first_and_the_default_one_second(registry):
    ring, copy = handle("allreduce_ring_4"), handle("allreduce_zero_copy_4")
    for one in (copy, ring):
        registry.register_plan(one)
    asked = []
    registry.set_default_selector(lambda plans, request: copy)
    assert registry.select(**CALL) is copy
    registry.set_selector(lambda plans, request: asked.append((plans, request)))
    assert registry.select(**CALL) is copy
    # Once, for the call as it was said.
    [(plans, request)] = asked
    assert request == plan.Request(**CALL)
    assert plans == {"allreduce": [copy, ring]} and request.message_size == 1 << 20
    registry.set_selector(lambda plans, request: ring)
    assert registry.select(**CALL) is ring
    registry.set_selector(lambda plans, request: "ring")
    with pytest.raises(InvalidArgumentError, match="returns a PlanHandle"):
        registry.select(**CALL)
    registry.set_selector(lambda plans, request: ring)
    with pytest.raises(InvalidArgumentError, match="joins ranks . and . by memory"):
        registry.select(**{**CALL, "n_ranks_per_node": 2})


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_selector_whose_error_has_no_words_fails(registry, monkeypatch, interrupted):
    class Mute(Exception):
        def __str__(self):
            raise LookupError

    def choose(plans, request):
        raise Mute

    def say(raised):
        raise KeyboardInterrupt

    if interrupted:
        monkeypatch.setattr(_registry, "_say", say)
    registry.set_selector(choose)
    with pytest.raises(InvalidArgumentError, match=None if interrupted else "Mute, which does not say more"):
        registry.select(**CALL)


def test_registered_plans_serve_calls_by_name(registry, tmp_path):
    kept = keep(tmp_path)

    def body(communicator):
        said = [sums(communicator)]
        communicator.barrier()
        if communicator.rank == 0:
            plan.register(kept)
            plan.register(kept)
        communicator.barrier()
        said.append(sums(communicator))
        assert "chosen: keep#keep-1 (registered plan)" in communicator.explain("allreduce", 4 * COUNT)
        communicator.barrier()
        if communicator.rank == 0:
            plan.unregister(kept)
        communicator.barrier()
        return [*said, sums(communicator)]

    ranks = on_ranks(WORLD, body, verification=False)
    assert ranks == [[10, rank + 1, 10] for rank in range(WORLD)]
    with pytest.raises(KeyError):
        plan.unregister(kept)


def test_who_asks_for_tags_is_served_by_what_has_them(registry, tmp_path, monkeypatch):
    own = [rank + 1 for rank in range(WORLD)]
    sum_of = [sum(own)] * WORLD

    def served(**asked):
        return on_ranks(WORLD, sums, verification=False, **asked)

    plain, tagged = keep(tmp_path), keep(tmp_path, name="tagged")
    plan.register(plain)
    assert (served(), served(tags=["mine"])) == (own, sum_of)
    plan.register(PlanHandle(tagged.id, tagged.name, tagged.plan, {"mine", "fast"}))
    assert (served(tags=["mine"]), served(tags=("fast", "mine")), served(tags={"mine", "other"})) == (own, own, sum_of)
    monkeypatch.setenv("ANTIPHON_TAGS", "mine,other")
    # Those that the program says, if only that there are none, go before those of the environment.
    assert (served(), served(tags=["mine"]), served(tags=[])) == (sum_of, own, own)

    told = []
    registry.set_selector(lambda plans, request: told.append(request.hints["tags"]))
    on_ranks(2, sums)
    assert told == [("mine", "other")] * 2


def test_tags_are_a_list_of_texts():
    for wrong, error in (("mine", TypeError), (["a\0b"], InvalidArgumentError)):
        with pytest.raises(error, match="tag"):
            on_ranks(1, sums, tags=wrong)


def test_what_is_shown_to_be_wrong_is_not_run(registry, tmp_path):
    plan.register(keep(tmp_path))
    for error in on_ranks(WORLD, failing):
        assert isinstance(error, PlanRefutedError) and "keep" in str(error)


def test_a_selector_is_asked_about_every_call(registry, tmp_path):
    kept, ring = keep(tmp_path), handle("allreduce_ring_4", tags=["ring"])
    for one in (ring, kept):
        registry.register_plan(one)
    asked = []
    lock = threading.Lock()

    def choose(plans, request):
        with lock:
            asked.append((plans, request, threading.get_ident()))
        return ring if request.message_size > 4096 else None

    plan.set_selector(choose)

    def body(communicator):
        return sums(communicator), sums(communicator, 2 * COUNT), threading.get_ident()

    ranks = on_ranks(WORLD, body, verification=False)
    assert [(small, large) for small, large, _ in ranks] == [(rank + 1, 10) for rank in range(WORLD)]
    assert len(asked) == 2 * WORLD and {thread for *_, thread in asked} == {thread for *_, thread in ranks}
    for plans, request, _ in asked:
        assert plans == {"allreduce": [ring, kept]}
        assert (request.collective, request.world_size, request.n_ranks_per_node) == ("allreduce", WORLD, WORLD)
        assert request.message_size in (4 * COUNT, 8 * COUNT) and request.dtype is DataType.float32
        assert request.send_buffer and request.recv_buffer not in (0, request.send_buffer)
        assert request.hints == {"op": Op.sum, "root": 0, "in_place": False, "tags": ()}
    # Where it has no answer the other one is asked, and then the rules decide.
    registry.set_default_selector(lambda plans, request: ring)
    assert on_ranks(WORLD, sums, verification=False) == [10] * WORLD


def test_a_rank_that_gives_an_allgather_nothing_is_in_place_with_the_others(registry):
    told, lock = [], threading.Lock()

    def choose(plans, request):
        with lock:
            told.append((request.collective, request.hints["in_place"]))

    registry.set_selector(choose)

    def body(communicator):
        out = np.zeros(4)
        out[:] = 7 if communicator.rank == 0 else 0
        # A block of nothing may be said to be anywhere.
        communicator.all_gather_v(None, out, [4, 0], receive_offsets=[0, 1000])
        return out.tolist()

    assert on_ranks(2, body) == [[7] * 4] * 2
    assert told == [("allgatherv", True)] * 2


def stray(plans, request):
    raise LookupError("no plan\0 for this")


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (stray, "LookupError: no plan  for this (test_registry.py:"),
        (lambda plans, request: "ring", "a selector returns a PlanHandle"),
        (lambda plans, request: handle("allreduce_zero_copy_8"), "there is no `allreduce_zero_copy_8#"),
        (lambda plans, request: plans["allgather"][0], "is for allgather"),
        (lambda plans, request: PlanHandle("x" * 2000, "long", None), "allowed names of 1023 bytes"),
        (lambda plans, request: exit(3), "SystemExit: 3"),
    ],
    ids=["raises", "no plan", "unknown", "unfit", "long", "exits"],
)
def test_a_selector_that_fails_is_an_error_of_the_call(registry, answer, part):
    registry.register_plan(handle("allgather_zero_copy_4"))
    registry.set_selector(answer)
    asked = threading.Barrier(WORLD)

    def body(communicator):
        error = failing(communicator)
        asked.wait(60)
        # Nothing was called, so that the ranks may go on.
        registry.set_selector(None)
        communicator.barrier()
        assert sums(communicator) == 10
        return error

    for error in on_ranks(WORLD, body):
        assert isinstance(error, InvalidArgumentError) and part in str(error), error


def test_ranks_that_choose_differently_are_told(registry, tmp_path):
    ring = handle("allreduce_ring_4")
    registry.register_plan(ring)
    chosen = threading.local()
    registry.set_selector(lambda plans, request: chosen.plan)

    def body(communicator):
        chosen.plan = ring if communicator.rank == 1 else None
        other = handle("allreduce_zero_copy_4")
        if communicator.rank == 0:
            registry.register_plan(other)
        communicator.barrier()
        return failing(communicator)

    errors = on_ranks(WORLD, body, timeout=20)
    assert any(isinstance(error, MismatchError) and "allreduce" in str(error) for error in errors), errors


def test_what_cannot_be_registered_is_refused_and_leaves_what_was(registry, tmp_path):
    kept = keep(tmp_path)
    registry.register_plan(kept)
    refused = {
        "contradicts": (PlanHandle(kept.id, kept.name, kept.plan, set(), Constraint(3)), InvalidArgumentError),
        "types": (PlanHandle(kept.id, kept.name, kept.plan, set(), Constraint(dtypes=(DataType.auto,))), NotImplementedError),
        "tags": (PlanHandle(kept.id, kept.name, kept.plan, {"a\0b"}), InvalidArgumentError),
    }
    for other, error in refused.values():
        with pytest.raises(error):
            registry.register_plan(other)
        assert registry.get(kept.id) is kept and [name for *_, name in listed()] == ["keep#keep-1"]
    (tmp_path / "empty.json").write_text('{"name": "e", "collective": "allreduce", "gpus": [{}]}')
    with pytest.raises(InvalidPlanError):
        registry.register_plan(PlanHandle("e", "e", ExecutionPlan(tmp_path / "empty.json")))


def test_a_plan_with_a_root_serves_that_root(registry, tmp_path):
    rooted = keep(tmp_path, only=1, collective="broadcast", name="own")
    call = {**CALL, "collective": "broadcast"}
    registry.register_plan(rooted)
    assert registry.select(**call) is None
    # Ranks may be in place or not, one by one, which nobody looks into.
    mixed = keep(tmp_path, collective="broadcast", name="mixed")
    registry.register_plan(PlanHandle("mixed-1", "mixed", mixed.plan, set(), Constraint(root=1)))
    assert registry.select(**call, hints={"root": 1}) is None
    said = PlanHandle("own-2", "own", rooted.plan, set(), Constraint(root=1))
    registry.register_plan(said)
    assert registry.select(**call, hints={"root": 1}) is said and registry.select(**call, hints={"root": 0}) is None

    def body(communicator):
        return [communicator.explain("broadcast", 4096, root=root) for root in (0, 1)]

    for zero, one in on_ranks(WORLD, body):
        assert "chosen: own#own-2" in one and "own#own-2 (registered plan): is for root 1" in zero


def test_a_gather_is_served_by_a_plan_for_its_root(registry, tmp_path):
    root = 2
    with CollectiveProgram("mine", Gather(WORLD, 1, False, root=root), WORLD) as program:
        for other in range(WORLD):
            own, place = Rank(other).get_input_buffer(), Rank(root).get_output_buffer()[other:other + 1]
            if other == root:
                Rank(root).copy(place, own[0:1], tb=0)
                continue
            to, back = MemoryChannel(root, other), MemoryChannel(other, root)
            to.put(place, own[0:1], tb=0)
            to.signal(tb=0)
            back.wait(tb=0)
    path = tmp_path / "mine.json"
    path.write_text(program.to_json())
    registry.register_plan(PlanHandle("mine", "mine", ExecutionPlan(path), set(), Constraint(root=root)))

    def body(communicator):
        own = np.full(COUNT, communicator.rank, "int32")
        every = np.zeros(WORLD * COUNT, "int32") if communicator.rank == root else None
        communicator.gather(own, every, root)
        said = [communicator.explain("gather", WORLD * own.nbytes, root=one) for one in (root, 0)]
        return every, *said

    for rank, (every, here, elsewhere) in enumerate(on_ranks(WORLD, body)):
        if rank == root:
            np.testing.assert_array_equal(every, np.repeat(np.arange(WORLD), COUNT))
        assert "chosen: mine#mine" in here and "is for root 2" in elsewhere
