"""A rank loads the sum of both members' chunks of a switch group, and keeps it."""

from antiphon.language.channel import SwitchChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import BufferType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer

with CollectiveProgram("switch_reduce_test", TestCollective(3, 1, 1), 3):
    channel = SwitchChannel(rank_list=[0, 1], buffer_type=BufferType.input)
    total = Buffer(0, 1)
    channel.at_rank(0).reduce(buffer_offset=0, size=1, dst_chunk=total[0:1], tb=0)
    print(JSON())
