"""The registry of plans: what it keeps, and what it chooses for a call."""

from pathlib import Path

import pytest

from antiphon.plan import Constraint, ExecutionPlan, ExecutionPlanRegistry, PlanHandle

PLANS = Path(__file__).parents[3] / "examples" / "plans"
CALL = {
    "collective": "allreduce",
    "world_size": 4,
    "n_ranks_per_node": 4,
    "send_buffer": 0,
    "recv_buffer": 0,
    "message_size": 1 << 20,
}


@pytest.fixture
def registry():
    """The process's, without what other tests registered."""
    the = ExecutionPlanRegistry()
    before, the._plans = the._plans, {}
    yield the
    the._plans = before
    the.set_selector(None)
    the.set_default_selector(None)


def handle(name, constraint=Constraint()):
    return PlanHandle(f"{name} {constraint}", name, ExecutionPlan(PLANS / f"{name}.json"), set(), constraint)


def test_without_an_answer_the_last_that_fits_is_chosen(registry):
    ring, copy = handle("allreduce_ring_4"), handle("allreduce_zero_copy_4")
    others = [
        handle("allreduce_zero_copy_8"),
        handle("allgather_zero_copy_4"),
        handle("allreduce_ring_4", Constraint(n_ranks_per_node=2)),
    ]
    for plan in (copy, ring, *others):
        registry.register_plan(plan)
    assert registry.select(**CALL) is ring
    registry.register_plan(copy)
    assert registry.select(**CALL) is copy
    assert registry.select(**{**CALL, "n_ranks_per_node": 2}) is copy
    assert registry.select(**{**CALL, "world_size": 3}) is None
    assert registry.select(**{**CALL, "collective": "reduce"}) is None
    copy.plan.min_message_size = 2 << 20
    assert registry.select(**CALL) is ring


def test_selectors_go_first_and_the_default_one_second(registry):
    ring, copy = handle("allreduce_ring_4"), handle("allreduce_zero_copy_4")
    for plan in (copy, ring):
        registry.register_plan(plan)
    asked = []
    registry.set_default_selector(lambda plans, request: copy)
    assert registry.select(**CALL) is copy
    registry.set_selector(lambda plans, request: asked.append((plans, request)))
    assert registry.select(**CALL) is copy
    [(plans, request)] = asked
    assert plans == {"allreduce": [copy, ring]} and request.message_size == 1 << 20
    registry.set_selector(lambda plans, request: ring)
    assert registry.select(**CALL) is ring
    registry.set_selector(lambda plans, request: "ring")
    with pytest.raises(TypeError, match="returns a PlanHandle"):
        registry.select(**CALL)
