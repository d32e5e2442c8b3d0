"""Buffers, and how they are sliced."""

import pytest

from antiphon.language import BaseBuffer, Buffer, BufferType, Chunk, CollectiveProgram, Rank, TestCollective

ROWS = BaseBuffer(3, BufferType.output, 10, 4)


@pytest.mark.parametrize(
    ("key", "index", "size"),
    [
        (slice(0, 1), 10, 1),
        (slice(1, 4), 11, 3),
        (slice(2, 2), 12, 0),
        (slice(4, 4), 14, 0),
        (slice(None, 2), 10, 2),
        (slice(3, None), 13, 1),
        (slice(None), 10, 4),
        (slice(0, 4, 1), 10, 4),
        (slice(0, 4, None), 10, 4),
    ],
)
def test_a_slice_is_a_chunk(key, index, size):
    chunk = ROWS[key]
    assert (chunk.rank, chunk.type, chunk.index, chunk.size) == (3, BufferType.output, index, size)
    assert chunk == Chunk(3, BufferType.output, index, size)
    assert hash(chunk) == hash(Chunk(3, BufferType.output, index, size))


@pytest.mark.parametrize(
    ("key", "error", "text"),
    [
        (0, TypeError, "saw a key of type int"),
        ("a", TypeError, "saw a key of type str"),
        ((slice(0, 1), slice(0, 1)), TypeError, "tuple"),
        (slice(0, 4, 2), ValueError, "steps of 2"),
        (slice(3, 0, -1), ValueError, "steps of -1"),
        (slice(-1, None), ValueError, "numbers from 0 on"),
        (slice(0, -1), ValueError, "numbers from 0 on"),
        (slice(2, 1), ValueError, "the end comes before the beginning"),
        (slice(5, None), ValueError, "the end comes before the beginning"),
        (slice(0, 5), RuntimeError, "output buffer of rank 3 with 4 chunks"),
        (slice(5, 6), RuntimeError, "with 4 chunks"),
    ],
)
def test_other_keys_are_refused(key, error, text):
    with pytest.raises(error, match=text):
        ROWS[key]


def test_chunks_differ_by_what_they_name():
    chunk = Chunk(0, BufferType.input, 1, 2)
    others = [
        Chunk(1, BufferType.input, 1, 2),
        Chunk(0, BufferType.output, 1, 2),
        Chunk(0, BufferType.input, 0, 2),
        Chunk(0, BufferType.input, 1, 1),
        (0, BufferType.input, 1, 2),
    ]
    assert all(chunk != other for other in others)
    assert repr(chunk) == "Chunk(rank=0, type=BufferType.input, index=1, size=2)"


def test_a_buffer_says_what_it_is():
    assert (ROWS.rank, ROWS.type, ROWS.offset, ROWS.size, len(ROWS)) == (3, BufferType.output, 10, 4, 4)
    assert repr(ROWS) == "BaseBuffer(rank=3, type=BufferType.output, offset=10, size=4)"
    with pytest.raises(TypeError, match="BufferType.input, BufferType.output, BufferType.scratch"):
        BaseBuffer(0, "elsewhere", 0, 1)


def test_buffers_have_two_names():
    chunk = Chunk(rank=3, buffer=BufferType.output, index=10, size=4)
    assert chunk == ROWS[:] == Chunk(3, BufferType.output, size=4, index=10) and chunk.buffer is chunk.type
    assert chunk.buffer is ROWS.buffer_type is BufferType.output
    assert BaseBuffer(3, buffer_type=BufferType.output, offset=10, size=4)[:] == chunk
    assert BaseBuffer(rank=3, type="output", offset=10, size=4)[:] == chunk
    for given in [{"buffer": "input", "type": "input"}, {"buffers": "input"}, {"buffer": "input", "tb": 0}]:
        with pytest.raises(TypeError, match="cannot make a Chunk: expected each argument once"):
            Chunk(rank=0, index=0, size=1, **given)
    for arguments in [(0, "input", 0), (0, "input", 0, 1, 1)]:
        with pytest.raises(TypeError, match="cannot make a BaseBuffer: expected each argument once"):
            BaseBuffer(*arguments)


def test_scratch_is_handed_out_in_order():
    with CollectiveProgram("p", TestCollective(2, 1, 1), 2):
        first, second, other = Buffer(0, 2), Buffer(0, 3), Buffer(1, 1)
        assert [(b.rank, b.type, b.offset, b.size) for b in (first, second, other)] == [
            (0, BufferType.scratch, 0, 2),
            (0, BufferType.scratch, 2, 3),
            (1, BufferType.scratch, 0, 1),
        ]
        assert second[0:3] == Chunk(0, BufferType.scratch, 2, 3)
        assert isinstance(first, BaseBuffer)
        with pytest.raises(RuntimeError, match="rank 2: allowed 0 to 1"):
            Buffer(2, 1)
        with pytest.raises(ValueError, match="saw -1 chunks"):
            Buffer(0, -1)


def test_a_rank_knows_its_buffers():
    with CollectiveProgram("p", TestCollective(2, 3, 5), 2):
        rank = Rank(1)
        assert rank.get_input_buffer()[:] == Chunk(1, BufferType.input, 0, 3)
        assert rank.get_output_buffer()[:] == Chunk(1, BufferType.output, 0, 5)
        assert (rank.rank, repr(rank)) == (1, "Rank(1)")


def test_buffer_names_the_buffers():
    assert (Buffer.input, Buffer.output) == (BufferType.input, BufferType.output)
    assert Buffer.scratch is Buffer.intermediate is BufferType.scratch
    assert BaseBuffer(0, Buffer.input, 0, 1).type is BufferType.input
