"""Packet allgather in place on two nodes: pack, send across, hand both chunks to the neighbour, unpack the rest."""

import argparse

from antiphon.language.channel import MemoryChannel, PortChannel
from antiphon.language.collectives import AllGather
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

RANKS, PER_NODE = 4, 2


def allgather(name):
    with CollectiveProgram(
        name, AllGather(RANKS, 1, True), RANKS, protocol="LL", use_double_scratch_buffer=True
    ):
        slots = [Buffer(rank, RANKS) for rank in range(RANKS)]
        for me in range(RANKS):
            rank = Rank(me)
            output = rank.get_output_buffer()
            neighbour = me ^ 1
            twin = (me + PER_NODE) % RANKS
            own, passed_on = MemoryChannel(neighbour, me), MemoryChannel(neighbour, me)
            across = PortChannel(twin, me)
            block = neighbour % PER_NODE
            rank.copy_packets(slots[me][me : me + 1], output[me : me + 1], tb=me)
            own.read_put_packets(slots[neighbour][me : me + 1], slots[me][me : me + 1], tb=block)
            across.read_put_packets(slots[twin][me : me + 1], slots[me][me : me + 1], tb=me % PER_NODE)
            passed_on.read_put_packets(slots[neighbour][twin : twin + 1], slots[me][twin : twin + 1], tb=block)
            for step in range(1, RANKS):
                source = (me + step) % RANKS
                rank.unpack_packets(output[source : source + 1], slots[me][source : source + 1], tb=step)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="allgather_packets_two_nodes")
allgather(parser.parse_args().name)
