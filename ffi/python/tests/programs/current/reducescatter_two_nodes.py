"""Reduce-scatter in place on two nodes of two: add the neighbour's chunks, send the twin its sum, add the twin's."""

import argparse

from antiphon.language.channel import MemoryChannel, PortChannel
from antiphon.language.collectives import ReduceScatter
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

RANKS, PER_NODE = 4, 2


def reducescatter(name):
    with CollectiveProgram(name, ReduceScatter(RANKS, 1, True), RANKS):
        inputs = [Rank(rank).get_input_buffer() for rank in range(RANKS)]
        inbox = [Buffer(rank, 1) for rank in range(RANKS)]
        for me in range(RANKS):
            neighbour = me ^ 1
            twin = (me + PER_NODE) % RANKS
            inside = MemoryChannel(neighbour, me)
            across = PortChannel(twin, me)
            inside.signal(tb=0, relaxed=True)
            inside.wait(tb=0, relaxed=True)
            for owner in (me, twin):
                inside.reduce(inputs[me][owner : owner + 1], [inputs[neighbour][owner : owner + 1]], tb=0)
            across.signal(tb=0)
            across.wait(tb=0)
            across.put_with_signal(inbox[twin][0:1], inputs[me][twin : twin + 1], tb=0)
            across.wait(tb=0, data_sync=SyncType.after)
            Rank(me).reduce(inputs[me][me : me + 1], [inbox[me][0:1]], tb=0)
            inside.signal(tb=0, relaxed=True)
            inside.wait(tb=0, relaxed=True)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="reducescatter_two_nodes")
reducescatter(parser.parse_args().name)
