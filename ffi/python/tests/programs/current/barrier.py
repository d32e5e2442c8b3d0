"""Two thread blocks of one rank meet at a barrier."""

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

with CollectiveProgram("barrier_test", TestCollective(1, 0, 0), 1):
    Rank(0).barrier(tb_list=[0, 1])
    print(JSON())
