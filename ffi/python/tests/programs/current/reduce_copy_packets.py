"""Adds packets to the input and writes the sum back as packets: locally, and with `--send` also to the other rank."""

import argparse

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank

parser = argparse.ArgumentParser()
parser.add_argument("--send", choices=["no", "sum", "packets"], default="no")
args = parser.parse_args()

ranks = 1 if args.send == "no" else 2
name = "reduce_copy_packets_test" if args.send == "no" else "reduce_copy_send_packets_test"
with CollectiveProgram(name, TestCollective(ranks, 1, 0), ranks, protocol="LL"):
    rank = Rank(0)
    total = rank.get_input_buffer()[0:1]
    slots = Buffer(0, 2)
    rank.reduce(total, [slots[0:1]], tb=0, packet=True)
    rank.copy_packets(slots[1:2], total, tb=0)
    if args.send != "no":
        channel = MemoryChannel(1, 0)
        inbox = Buffer(1, 1)[0:1]
        if args.send == "sum":
            channel.put_packets(inbox, total, tb=0)
        else:
            channel.read_put_packets(inbox, slots[1:2], tb=0)
    print(JSON())
