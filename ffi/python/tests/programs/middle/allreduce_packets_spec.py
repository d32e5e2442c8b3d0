"""A packet allreduce as a function of an algorithm's specification, imported from the places where the names live."""

from mscclpp.language import AlgoSpec, ReplicationPolicy
from mscclpp.language.channel import Channel
from mscclpp.language.collectives import AllReduce
from mscclpp.language.internal.types import SyncType
from mscclpp.language.program import CollectiveProgram
from mscclpp.language.rank import Buffer, Rank


def allreduce(spec: AlgoSpec) -> CollectiveProgram:
    size = spec.world_size
    with CollectiveProgram.from_spec(spec) as program:
        slots = [Buffer(gpu, 2 * size) for gpu in range(size)]
        for gpu in range(size):
            rank = Rank(gpu)
            data = rank.get_input_buffer()
            own = data[gpu : gpu + 1]
            peers = {peer: Channel(peer, gpu) for peer in range(size) if peer != gpu}
            for peer, channel in peers.items():
                channel.put_packets(slots[peer][gpu : gpu + 1], data[peer : peer + 1], tb=0)
            rank.reduce(own, [slots[gpu][peer : peer + 1] for peer in peers], tb=0, packet=True)
            for peer, channel in peers.items():
                channel.put_packets(slots[peer][size + gpu : size + gpu + 1], own, tb=0)
            for peer in peers:
                rank.unpack_packets(data[peer : peer + 1], slots[gpu][size + peer : size + peer + 1], tb=0)
    return program


spec = AlgoSpec(
    name="allreduce_packets_spec",
    collective=AllReduce(4, 1, True),
    nranks_per_node=4,
    world_size=4,
    in_place=True,
    instances=2,
    protocol="LL",
    replication_policy=ReplicationPolicy.interleaved,
    use_double_scratch_buffer=True,
    tags={"packets": 1},
)
print(allreduce(spec).to_json())
