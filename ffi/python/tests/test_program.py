"""Programs: what they are given, when they are current, and the text of their plans."""

import json

import pytest

from antiphon.language import *
from conftest import plan

OPTIONS = {
    "instances": 1,
    "protocol": "Simple",
    "instr_fusion": True,
    "auto_sync": True,
    "replication_policy": ReplicationPolicy.interleaved,
    "reuse_resources": False,
    "num_threads_per_block": 1024,
    "use_double_scratch_buffer": False,
    "buffer_alignment": 16,
    "min_message_size": 0,
    "max_message_size": 2**64 - 1,
}
OTHERS = {
    "instances": 2,
    "protocol": "LL",
    "instr_fusion": False,
    "auto_sync": False,
    "replication_policy": ReplicationPolicy.interleaved,
    "reuse_resources": True,
    "num_threads_per_block": 512,
    "use_double_scratch_buffer": True,
    "buffer_alignment": 64,
    "min_message_size": 1024,
    "max_message_size": 1 << 20,
}
KEYS = [
    *["name", "collective", "protocol", "inplace", "reuse_resources", "gpus", "num_threads_per_block"],
    *["use_double_scratch_buffer", "buffer_alignment", "min_message_size", "max_message_size"],
]


def options(program):
    return {name: getattr(program, name) for name in OPTIONS}


def swap(name="swap", line=None, **settings):
    """Two ranks put their inputs into each other's outputs."""
    with CollectiveProgram(name, SendRecv(2, 1, False), 2, **settings) as program:
        for me, peer in [(0, 1), (1, 0)]:
            channel = MemoryChannel(peer, me)
            channel.put(Rank(peer).get_output_buffer()[:], Rank(me).get_input_buffer()[:], tb=0)
            channel.signal(0)
            channel.wait(tb=0)
    return program


def test_sizes_may_be_floats_that_are_whole():
    said = {"num_threads_per_block": 512.0, "buffer_alignment": 1e2 / 100 * 64, "min_message_size": 2e3, "max_message_size": 1e9}
    program = swap(**said)
    assert {name: options(program)[name] for name in said} == said and isinstance(program.max_message_size, int)
    program.max_message_size = 3e9
    assert json.loads(program.to_json())["max_message_size"] == 3_000_000_000
    assert '"max_message_size": 3000000000' in program.to_json()
    for loop in (LoopIterationContext(unit=1e6, num_chunks=4 / 2), Loop.iteration(1e6, 2.0)):
        assert (loop.unit, loop.num_chunks) == (1_000_000, 2)
    with MSCCLPPProgram("oldest", AllGather(2, 1, True), 2, max_message_size=1e9) as oldest:
        chunk(0, Buffer.output, 0).put(1, sendtb=0)
    assert json.loads(oldest.to_json())["max_message_size"] == 10**9


@pytest.mark.parametrize("size", [1.5, float("nan"), float("inf"), 2.0**53, "1e9"])
def test_other_floats_are_refused(size):
    with pytest.raises(TypeError):
        swap(max_message_size=size)
    with pytest.raises(TypeError):
        LoopIterationContext(size, 1)


def test_options_have_the_defaults_of_the_language():
    collective = AllReduce(2, 1, True)
    program = CollectiveProgram("p", collective, 2)
    assert options(program) == OPTIONS
    assert (program.name, program.num_ranks, program.collective) == ("p", 2, collective)
    text = plan(program)
    assert list(text) == KEYS
    assert text.pop("gpus")[1]["semaphores"] == []
    assert text == {
        "name": "p",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 2**64 - 1,
    }


def test_options_may_be_set_until_the_plan_is_made():
    program = swap()
    for name, value in {"name": "other", **OTHERS}.items():
        if name == "instr_fusion":
            continue
        setattr(program, name, value)
        assert getattr(program, name) == value
    given = {**OTHERS, "instr_fusion": True}
    assert (options(program), plan(program)) == (given, plan(swap("other", **given)))
    with pytest.raises(ValueError, match="saw 0 instances"):
        program.instances = 0
    with pytest.raises(AssertionError, match="Given protocol: LL128"):
        program.protocol = "LL128"
    for name in ("collective", "num_ranks", "instr_fusion"):
        with pytest.raises(AttributeError):
            setattr(program, name, getattr(program, name))
    assert options(program) == given


def test_a_program_without_a_name_is_called_as_its_collective():
    program = swap(None)
    assert (program.name, plan(program)["name"]) == ("sendrecv", "sendrecv")
    assert plan(CollectiveProgram(name=None, collective=TestCollective(2, 1, 1), num_ranks=2))["name"] == "test"
    assert plan(MSCCLPPProgram(None, AllReduce(2, 2, True), 2, 1))["name"] == "allreduce"


def test_options_can_be_positional_and_reach_the_plan():
    program = CollectiveProgram("p", AllReduce(2, 1, True), 2, *OTHERS.values())
    assert options(program) == OTHERS
    text = plan(program)
    for name in set(OTHERS) & set(KEYS):
        assert text[name] == OTHERS[name]
    with pytest.raises(TypeError):
        CollectiveProgram("p", AllReduce(2, 1, True), 2, *OTHERS.values(), True)


def test_a_spec_makes_the_same_program():
    collective = AllGather(4, 1, True)
    spec = AlgoSpec("p", collective, 8, 4, False, 1, "LL")
    assert (spec.nranks_per_node, spec.world_size, spec.in_place, spec.tags) == (8, 4, False, {})
    program = CollectiveProgram.from_spec(spec)
    assert isinstance(program, CollectiveProgram)
    assert options(program) == OPTIONS | {"protocol": "LL"}
    assert (program.name, program.num_ranks, program.collective) == ("p", 4, collective)
    spec = AlgoSpec("p", collective, 8, 4, True, **OTHERS, tags={"default": 1})
    assert options(CollectiveProgram.from_spec(spec)) == OTHERS
    with pytest.raises(AttributeError):
        spec.name = "other"
    with pytest.raises(TypeError):
        AlgoSpec("p", collective, 8, 4, True, 1)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"protocol": "LL128"}, AssertionError, "^Given protocol: LL128. Must be either Simple, LL$"),
        ({"num_ranks": 0}, ValueError, "saw 0 ranks"),
        ({"instances": 0}, ValueError, "saw 0 instances"),
        (
            {"instances": 2, "replication_policy": ReplicationPolicy.none},
            ValueError,
            "cannot replicate 2 instances without a policy",
        ),
        ({"replication_policy": "packed"}, TypeError, "ReplicationPolicy.interleaved"),
        ({"instr_fusing": True}, TypeError, "instr_fusing"),
    ],
)
def test_wrong_options_are_refused(given, error, text):
    with pytest.raises(error, match=text):
        CollectiveProgram(**{"name": "p", "collective": AllReduce(2, 1, True), "num_ranks": 2} | given)


OUTSIDE = {
    "rank": lambda: Rank(0),
    "buffer": lambda: Buffer(0, 1),
    "semaphore": lambda: Semaphore(0, 1),
    "memory": lambda: MemoryChannel(1, 0),
    "port": lambda: PortChannel(1, 0),
    "switch": lambda: SwitchChannel([0, 1], BufferType.input),
    "loop": lambda: LoopIterationContext(1024, 1).__enter__(),
    "json": JSON,
    "program": get_program,
}


@pytest.mark.parametrize("make", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_is_made_outside_of_a_program(make):
    CollectiveProgram("p", AllReduce(2, 1, True), 2)
    with pytest.raises(RuntimeError, match="^No Program in context$"):
        make()


def test_a_nested_program_replaces_the_current_one_for_good():
    with CollectiveProgram("outer", AllReduce(2, 1, True), 2) as outer:
        rank = Rank(0)
        assert get_program() is outer
        with CollectiveProgram("inner", AllReduce(2, 1, True), 2) as inner:
            assert get_program() is inner
            assert json.loads(JSON())["name"] == "inner"
            with pytest.raises(RuntimeError, match="another program than the current one"):
                rank.barrier([0])
        with pytest.raises(RuntimeError, match="No Program in context"):
            rank.barrier([0])


def test_an_exception_ends_the_program_and_goes_on():
    with pytest.raises(KeyError), CollectiveProgram("p", AllReduce(2, 1, True), 2):
        raise KeyError("mine")
    with pytest.raises(RuntimeError, match="No Program in context"):
        Rank(0)


def test_programs_start_from_nothing():
    first, second = plan(swap()), plan(swap())
    assert first == second
    for _ in range(2):
        with CollectiveProgram("p", TestCollective(2, 1, 1), 2) as program:
            assert (MemoryChannel(1, 0).channel_id, MemoryChannel(1, 0).channel_id) == (0, 1)
            assert (PortChannel(1, 0).channel_id, Semaphore(0, 5).id) == (0, 0)
            Rank(0).barrier([0, 1])
        assert plan(program)["gpus"][0]["threadblocks"][1]["ops"][-1]["barrier_id"] == 0


def test_the_text_is_that_of_json_dumps():
    program = swap(instances=2)
    text = program.to_json()
    value = json.loads(text)
    assert text == json.dumps(value, indent=2)
    assert program.to_json() == text, "post-processing happens once"
    assert len(value["gpus"]) == 2
    for arguments in [
        {"indent": None},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": None, "separators": (",", ":")},
        {"sort_keys": True},
        {"indent": 2, "ensure_ascii": False},
    ]:
        assert program.to_json(**arguments) == json.dumps(value, **{"indent": 2} | arguments)
    assert program.to_json(None) == json.dumps(value)
    with pytest.raises(TypeError):
        program.to_json(unknown=1)


def test_names_can_have_any_characters():
    name = 'ré"\n\u4e00\U0001f600'
    program = swap(name)
    assert program.to_json() == json.dumps(plan(program), indent=2)
    assert plan(program)["name"] == name


def test_json_is_the_current_programs_text():
    with CollectiveProgram("p", AllReduce(2, 1, True), 2) as program:
        assert JSON() == program.to_json()


def test_plans_are_written_to_files(tmp_path):
    program = swap()
    program.write(tmp_path / "pretty.json")
    assert (tmp_path / "pretty.json").read_text() == program.to_json() + "\n"
    program.write(str(tmp_path / "compact.json"), indent=None)
    assert (tmp_path / "compact.json").read_text() == program.to_json(None, separators=(",", ":")) + "\n"
    with pytest.raises(ValueError, match="indent=4: allowed 2 and None"):
        program.write(tmp_path / "other.json", indent=4)
    with pytest.raises(FileNotFoundError) as caught:
        program.write(tmp_path / "nowhere" / "plan.json")
    assert caught.value.filename == str(tmp_path / "nowhere" / "plan.json")


def test_the_report_says_what_the_passes_did():
    first, second, *_ = swap(instr_fusion=False).report().splitlines()
    assert first == "operations: 6 recorded, 6 fused"
    assert second.startswith("block synchronisations: 0 written, ")


def test_signals_without_waits_are_found_with_their_lines():
    with CollectiveProgram("p", SendRecv(2, 1, False), 2) as program:
        here, there = MemoryChannel(1, 0), MemoryChannel(0, 1)
        program.validate_signal_wait_pairing()
        here.signal(0)
        here.signal(0)
        there.wait(0)
        for check in (JSON, program.to_json, program.validate_signal_wait_pairing, program.post_process_operations):
            with pytest.raises(RuntimeError, match="^Signal/Wait mismatch on memory channel 0 of rank 0") as caught:
                check()
        here.wait(0)
        there.signal(0)
        there.wait(0)
        program.validate_signal_wait_pairing()
    lines = {number: line for number, line in enumerate(open(__file__), 1)}
    text = str(caught.value)
    assert "saw 2 signals and 1 waits" in text
    signalled, waited = (text.split(f"{word} last at {__file__}:")[1].split(";")[0] for word in ("signalled", "waited for"))
    assert lines[int(signalled)].strip() == "here.signal(0)" and "here.signal" in lines[int(signalled) - 1]
    assert lines[int(waited)].strip() == "there.wait(0)"


@pytest.mark.parametrize("method", ["put_with_signal", "put_with_signal_and_flush"])
def test_port_transfers_that_signal_need_waits(method):
    with CollectiveProgram("p", SendRecv(2, 1, False), 2) as program:
        channel, back = PortChannel(1, 0), PortChannel(0, 1)
        getattr(channel, method)(Rank(1).get_output_buffer()[:], Rank(0).get_input_buffer()[:], 0)
        with pytest.raises(RuntimeError, match="mismatch on port channel 0 of rank 0") as caught:
            program.validate_signal_wait_pairing()
        assert __file__ in str(caught.value)
        back.wait(0)
        program.validate_signal_wait_pairing()


def test_errors_at_the_call_carry_its_line():
    with CollectiveProgram("p", SendRecv(2, 1, False), 2):
        with pytest.raises(RuntimeError) as caught:
            Rank(7)  # this line
    line = open(__file__).read().splitlines()[caught.tb.tb_lineno - 1]
    assert line.endswith("# this line")


def test_compatible_programs_meet_where_the_formats_own_language_does():
    def names(**settings):
        ops = plan(swap(**settings))["gpus"][0]["threadblocks"][0]["ops"]
        return [op["name"] for op in ops]

    assert names(compatible=True) == ["put", "nop", "signal", "nop", "wait", "nop"]
    assert [name for name in names() if name != "nop"] == ["put", "signal", "wait"]
