"""A rank stores a chunk to both members of a switch group."""

from antiphon.language.channel import SwitchChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import BufferType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer

with CollectiveProgram("group_store_test", TestCollective(3, 1, 1), 3):
    channel = SwitchChannel(rank_list=[0, 1], buffer_type=BufferType.input)
    staged = Buffer(0, 1)
    channel.at_rank(0).broadcast(staged[0:1], buffer_offset=0, size=1, tb=0)
    print(JSON())
