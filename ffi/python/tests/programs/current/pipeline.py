"""A copy that goes through the message a mebibyte at a time."""

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.loop import LoopIterationContext
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

with CollectiveProgram("barrier_test", TestCollective(1, 1, 1), 1):
    rank = Rank(0)
    with LoopIterationContext(unit=2**20, num_chunks=1):
        rank.copy(rank.get_output_buffer()[0:1], rank.get_input_buffer()[0:1], tb=0)
    print(JSON())
