"""Every rank sends to the next one in the ring, over port channels."""

import argparse

from antiphon.language.channel import PortChannel
from antiphon.language.collectives import SendRecv
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Rank


def send_recv(name, ranks, instances):
    with CollectiveProgram(name, SendRecv(ranks, 1, False), ranks, instances=instances):
        to_next, to_previous = [None] * ranks, [None] * ranks
        for me in range(ranks):
            if ranks == 2 and me == 1:
                # The k-th channel of one rank pairs with the k-th of the other: the first carries 0 -> 1.
                to_previous[me] = PortChannel(0, me)
                to_next[me] = PortChannel(0, me)
            else:
                to_next[me] = PortChannel((me + 1) % ranks, me)
                to_previous[me] = PortChannel((me - 1) % ranks, me)
        for me in range(ranks):
            following = (me + 1) % ranks
            to_previous[me].signal(tb=0, data_sync=SyncType.none)
            to_next[me].wait(tb=0, data_sync=SyncType.after)
            to_next[me].put_with_signal(
                Rank(following).get_output_buffer()[0:1], Rank(me).get_input_buffer()[0:1], tb=0
            )
            to_previous[me].wait(tb=0, data_sync=SyncType.none)
        print(JSON())


parser = argparse.ArgumentParser()
parser.add_argument("--name", default="send_recv")
parser.add_argument("--gpus_per_node", type=int, default=1)
parser.add_argument("--nodes", type=int, default=2)
parser.add_argument("--instances", type=int, default=1)
args = parser.parse_args()
send_recv(args.name, args.gpus_per_node * args.nodes, args.instances)
