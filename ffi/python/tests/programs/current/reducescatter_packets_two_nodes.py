"""Packet reduce-scatter in place on two nodes: sum for the twin first, send it packed, then sum one's own chunk."""

import argparse

from antiphon.language.channel import MemoryChannel, PortChannel
from antiphon.language.collectives import ReduceScatter
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

RANKS, PER_NODE = 4, 2
FOR_TWIN, FROM_TWIN = 2, 3


def reducescatter(name):
    with CollectiveProgram(
        name, ReduceScatter(RANKS, 1, True), RANKS, protocol="LL", use_double_scratch_buffer=True
    ):
        # Slots 0 and 1: by the sender's place in its node. A rank never sends to itself, so it packs in its own slot.
        slots = [Buffer(rank, 4) for rank in range(RANKS)]
        for me in range(RANKS):
            rank = Rank(me)
            data = rank.get_input_buffer()
            place = me % PER_NODE
            neighbour = me ^ 1
            twin = (me + PER_NODE) % RANKS
            inside = MemoryChannel(neighbour, me)
            across = PortChannel(twin, me)
            their_twin = (neighbour + PER_NODE) % RANKS
            inside.put_packets(slots[neighbour][place : place + 1], data[neighbour : neighbour + 1], tb=0)
            inside.put_packets(
                slots[neighbour][FOR_TWIN : FOR_TWIN + 1], data[their_twin : their_twin + 1], tb=0
            )
            rank.reduce(data[twin : twin + 1], [slots[me][FOR_TWIN : FOR_TWIN + 1]], tb=0, packet=True)
            rank.copy_packets(slots[me][place : place + 1], data[twin : twin + 1], tb=0)
            across.read_put_packets(
                slots[twin][FROM_TWIN : FROM_TWIN + 1], slots[me][place : place + 1], tb=0
            )
            other = 1 - place
            rank.reduce(
                data[me : me + 1],
                [slots[me][FROM_TWIN : FROM_TWIN + 1], slots[me][other : other + 1]],
                tb=0,
                packet=True,
            )
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="reducescatter_packets_two_nodes")
reducescatter(parser.parse_args().name)
