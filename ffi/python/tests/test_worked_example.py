"""A program whose plan is known to the last value: allreduce over packets, two ranks, in place."""

from antiphon.language.channel import MemoryChannel
from antiphon.language.collectives import AllReduce
from antiphon.language.general import JSON
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Buffer, Rank
from conftest import plan


def rank_of_plan(me):
    you = 1 - me

    def local(kind, index):
        return {"type": kind, "index": index, "size": 1}

    def remote(index):
        return {"buffer_id": 0, "index": index, "size": 1}

    return {
        "id": me,
        "input_chunks": 2,
        "output_chunks": 2,
        "scratch_chunks": 2,
        "threadblocks": [
            {
                "id": 0,
                "ops": [
                    {
                        "name": "ppkt",
                        "src_buff": [local("i", you)],
                        "dst_buff": [remote(0)],
                        "channel_type": "memory",
                    },
                    {
                        "name": "respkt",
                        "src_buff": [local("i", me), local("s", 0)],
                        "dst_buff": [local("i", me), remote(1)],
                        "channel_type": "memory",
                        "reduce_op": "sum",
                    },
                    {"name": "nop"},
                    {"name": "upkt", "src_buff": [local("s", 1)], "dst_buff": [local("i", you)]},
                ],
                "channels": [{"channel_type": "memory", "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
            }
        ],
        "channels": [{"channel_type": "memory", "connected_to": [you]}],
        "remote_buffers": [{"rank": you, "type": "s", "access_channel_types": ["memory"]}],
        "semaphores": [],
    }


def test_the_plan_is_the_known_one():
    settings = {"num_threads_per_block": 512, "max_message_size": 1 << 20, "compatible": True}
    with CollectiveProgram(
        "ar2", AllReduce(2, 1, True), 2, protocol="LL", use_double_scratch_buffer=True, **settings
    ) as program:
        s = [Buffer(0, 2), Buffer(1, 2)]
        for me in range(2):
            you = 1 - me
            ch = MemoryChannel(you, me)
            x = Rank(me).get_input_buffer()
            ch.put_packets(s[you][0:1], x[you : you + 1], tb=0)
            Rank(me).reduce(x[me : me + 1], [s[me][0:1]], tb=0, packet=True)
            ch.put_packets(s[you][1:2], x[me : me + 1], tb=0)
            Rank(me).unpack_packets(x[you : you + 1], s[me][1:2], tb=0)
        assert JSON() == program.to_json()
    assert plan(program) == {
        "name": "ar2",
        "collective": "allreduce",
        "protocol": "LL",
        "inplace": True,
        "reuse_resources": False,
        "gpus": [rank_of_plan(0), rank_of_plan(1)],
        "num_threads_per_block": 512,
        "use_double_scratch_buffer": True,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": 1048576,
    }
