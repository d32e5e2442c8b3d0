"""The enums, and where names are imported from."""

import importlib
import inspect

import pytest

import antiphon.language
from antiphon.language import (
    BufferType,
    ChannelType,
    DataAccessType,
    Instruction,
    ReduceOperationType,
    ReplicationPolicy,
    SyncType,
)

MODULES = {
    "channel": ["MemoryChannel", "PortChannel", "SwitchChannel"],
    "rank": ["Rank", "BaseBuffer", "Buffer", "Semaphore"],
    "general": ["JSON"],
    "program": ["CollectiveProgram"],
    "collectives": [
        *["Collective", "TestCollective", "AllGather", "AllReduce", "ReduceScatter", "AllToAll", "SendRecv"],
        *["Broadcast", "Reduce", "Gather", "Scatter"],
    ],
    "loop": ["LoopIterationContext"],
    "thread_block_group": ["ThreadBlockGroup"],
    "utils": ["AlgoSpec", "ReplicationPolicy"],
    "internal.types": [
        *["SyncType", "ReduceOperationType", "BufferType", "ChannelType", "DataAccessType", "Chunk", "Instruction"],
        *["RankGroup", "ReplicationPolicy"],
    ],
}


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_where_programs_import_it(module):
    found = importlib.import_module(f"antiphon.language.{module}")
    for name in MODULES[module]:
        assert getattr(found, name) is getattr(antiphon.language, name)
        assert name in antiphon.language.__all__


def test_every_public_name_is_documented():
    for name in antiphon.language.__all__:
        public = getattr(antiphon.language, name)
        assert inspect.getdoc(public), name
        members = vars(public).items() if inspect.isclass(public) else []
        for member, value in members:
            if not member.startswith("_") and callable(value):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_sync_types_combine():
    none, before, after, both = SyncType.none, SyncType.before, SyncType.after, SyncType.both
    assert before | after is both and none | after is after
    assert both & after is after and before & after is none
    assert both ^ after is before and both ^ both is none
    for combine in ("__or__", "__and__", "__xor__"):
        assert getattr(both, combine)(1) is NotImplemented


def test_enums_have_the_names_of_plans():
    assert [(b.name, b.value) for b in BufferType] == [("input", "i"), ("output", "o"), ("scratch", "s")]
    assert [c.value for c in ChannelType] == ["memory", "port", "switch", "none"]
    assert [r.name for r in ReduceOperationType] == ["sum", "min", "max", "prod"]
    assert [d.name for d in DataAccessType] == ["read", "write", "both"]
    assert str(Instruction.reduce_send_packets) == "respkt"


def test_the_text_of_a_member_is_its_value():
    enums = (SyncType, ReduceOperationType, BufferType, ChannelType, DataAccessType, ReplicationPolicy, Instruction)
    for enum in enums:
        assert [str(member) for member in enum] == [f"{member}" for member in enum] == [member.value for member in enum]
        assert all(enum(str(member)) is member for member in enum)
    assert str(ChannelType.sm) == "memory" and SyncType("before") is SyncType.before


def test_buffers_are_sorted():
    assert sorted([BufferType.scratch, BufferType.output, BufferType.input]) == list(BufferType)
    assert BufferType.output > BufferType.input
    with pytest.raises(TypeError):
        assert BufferType.output < "s"


def test_instructions_have_two_names():
    names = "put_packet read_put_packet copy_packet unpack_packet reduce_packet reduce_send_packet reduce_copy_packet"
    for name in [*names.split(), "reduce_copy_send_packet", "group_store_packet"]:
        assert Instruction[name] is Instruction[name + "s"] and Instruction[name].name == name
    assert Instruction.start.value == "start"
