"""Classes of the author's own that derive from the language's, with an `__init__` of their own."""

import pytest
from conftest import plan

from antiphon.language import (
    BaseBuffer,
    Buffer,
    BufferType,
    CollectiveProgram,
    MemoryChannel,
    PortChannel,
    Rank,
    SendRecv,
)


class Pair(CollectiveProgram):
    """A program of two ranks, which counts its instances otherwise."""

    def __init__(self, name, *args, copies=1, **kwargs):
        super().__init__(name, SendRecv(2, 1, False), 2, *args, instances=copies, **kwargs)
        self.copies = copies


class Node(Rank):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.peer = 1 - self.rank


class Inbox(Buffer):
    def __init__(self, node):
        super().__init__(node.rank, 1)
        self.node = node


class Line(MemoryChannel):
    def __init__(self, node, tb=0):
        super().__init__(node.peer, src_rank=node.rank)
        self.tb = tb

    def say(self):
        self.signal(self.tb)
        self.wait(self.tb)


class Wire(PortChannel):
    def __init__(self, node):
        super().__init__(dst_rank=node.peer, src_rank=node.rank)


class Part(BaseBuffer):
    def __init__(self, at):
        super().__init__(0, buffer_type=BufferType.input, offset=at, size=1)


class Forgetful(Rank):
    def __init__(self, rank):
        self.number = rank


def test_they_say_what_they_are_by_super():
    with Pair("pair", copies=2, protocol="LL") as program:
        nodes = [Node(0), Node(rank=1)]
        boxes = [Inbox(node) for node in nodes]
        for node in nodes:
            line = Line(node, tb=1)
            line.put(boxes[node.peer][:], node.get_input_buffer()[:], tb=1)
            line.say()
            node.copy(node.get_output_buffer()[:], boxes[node.rank][:], tb=1)
            assert (Wire(node).dst_rank, Part(3)[0:1].index) == (node.peer, 3)
    text = plan(program)
    assert (program.copies, program.instances, text["protocol"], text["name"]) == (2, 2, "LL", "pair")
    assert [op["name"] for op in text["gpus"][0]["threadblocks"][2]["ops"] if op["name"] != "nop"] == [
        "put", "signal", "wait", "copy",
    ]  # fmt: skip


def test_what_is_not_made_or_made_twice_is_refused():
    with Pair("pair"):
        with pytest.raises(RuntimeError, match="before it is made: its class has an __init__ that does not call super"):
            Forgetful(0).get_input_buffer()
        box = Buffer(0, 2)
        with pytest.raises(RuntimeError, match="cannot make the object twice"):
            box.__init__(0, 2)
        assert Buffer(0, 1).offset == 2
        with pytest.raises(TypeError):
            Rank()
        with pytest.raises(TypeError):
            MemoryChannel(0, 1, 2)


def test_the_hook_of_a_collective_may_be_given_the_program():
    class Checked(SendRecv):
        def check(self, prog):
            super().check(prog)
            return prog

    assert Checked(2, 1, False).check(7) == 7
    SendRecv(2, 1, False).check()
