"""Allgather in place on two nodes of two: exchange within the node, with the twin across, and pass on what came."""

import argparse

from antiphon.language.channel import MemoryChannel, PortChannel
from antiphon.language.collectives import AllGather
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank

RANKS, PER_NODE = 4, 2


def allgather(name):
    with CollectiveProgram(name, AllGather(RANKS, 1, True), RANKS):
        outputs = [Rank(rank).get_output_buffer() for rank in range(RANKS)]
        for me in range(RANKS):
            neighbour = me ^ 1
            twin = (me + PER_NODE) % RANKS
            inside = MemoryChannel(neighbour, me)
            across = PortChannel(twin, me)
            inside.signal(tb=0, relaxed=True)
            inside.wait(tb=0, relaxed=True)
            inside.put(outputs[neighbour][me : me + 1], outputs[me][me : me + 1], tb=0)
            across.signal(tb=0)
            across.wait(tb=0)
            across.put_with_signal_and_flush(outputs[twin][me : me + 1], outputs[me][me : me + 1], tb=0)
            across.wait(tb=0, data_sync=SyncType.after)
            inside.put(outputs[neighbour][twin : twin + 1], outputs[me][twin : twin + 1], tb=0)
            inside.signal(tb=0)
            inside.wait(tb=0)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_two_nodes")
allgather(parser.parse_args().name)
