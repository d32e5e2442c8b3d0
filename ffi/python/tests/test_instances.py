"""Instances of programs that name one range of chunks in runs of different lengths."""

import json

import pytest

from antiphon.language import (
    CollectiveProgram,
    LoopIterationContext,
    Rank,
    TestCollective,
    ThreadBlockGroup,
    Buffer,
)


def mixed(instances):
    """Two chunks at once into scratch, then the second of them to the output."""
    with CollectiveProgram("mixed", TestCollective(1, 4, 4), 1, instances=instances) as program:
        scratch = Buffer(0, 2)
        rank = Rank(0)
        rank.copy(scratch[0:2], rank.get_input_buffer()[0:2], tb=0)
        rank.copy(rank.get_output_buffer()[0:1], scratch[1:2], tb=0)
    return program


def ops(program, block):
    ops = json.loads(program.to_json())["gpus"][0]["threadblocks"][block]["ops"]
    refs = [(op["name"], *(op[side][0]["index"] for side in ("src_buff", "dst_buff"))) for op in ops if "src_buff" in op]
    return refs


def test_instances_never_meet():
    assert ops(mixed(1), 0) == [("copy", 0, 0), ("copy", 1, 0)]
    two = mixed(2)
    assert ops(two, 0) == [("copy", 0, 0), ("copy", 2, 2), ("copy", 2, 0)]
    assert ops(two, 1) == [("copy", 1, 1), ("copy", 3, 3), ("copy", 3, 1)]
    assert "divided: 1 operations into 2" in two.report()


def line_of(text):
    """The number of the line of this file that ends with a comment."""
    with open(__file__, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {text}"))


def test_what_cannot_be_divided_is_refused_with_the_lines():
    with CollectiveProgram("piped", TestCollective(1, 4, 4), 1, instances=2) as program:
        scratch, rank = Buffer(0, 2), Rank(0)
        with LoopIterationContext(unit=64, num_chunks=2):
            rank.copy(scratch[0:2], rank.get_input_buffer()[0:2], tb=0)  # in the pipeline
        rank.copy(rank.get_output_buffer()[0:1], scratch[1:2], tb=0)  # after it
    with pytest.raises(RuntimeError, match="which a pipeline moves window by window") as caught:
        program.to_json()
    said = str(caught.value)
    for part in (
        "chunks 0 to 2 (exclusive) of buffer s of rank 0",
        "chunks 1 to 2 (exclusive) of buffer s of rank 0",
        f"test_instances.py:{line_of('in the pipeline')})",
        f"test_instances.py:{line_of('after it')})",
        "or use one instance",
    ):
        assert part in said, said


def test_groups_are_not_divided():
    with CollectiveProgram("shared", TestCollective(1, 4, 4), 1, instances=2) as program:
        scratch, rank = Buffer(0, 2), Rank(0)
        rank.copy(scratch[0:2], rank.get_input_buffer()[0:2], tb_group=ThreadBlockGroup([0, 1]))
        rank.barrier([0, 1])
        rank.copy(rank.get_output_buffer()[0:1], scratch[1:2], tb=0)
    with pytest.raises(RuntimeError, match="of which the blocks of a group do a slice each"):
        program.to_json()
