"""A ring allgather: written, compiled, proven, and run by every rank over NumPy arrays.

Each rank runs this file. With `-o ring.json` it only writes the plan, for other programs: `client.cpp` runs it.
"""

import sys

import numpy as np

import antiphon
from antiphon.dsl import jit
from antiphon.language import AllGather, CollectiveProgram, MemoryChannel, Rank


def ring(world_size):
    """The program: every rank puts its block into the next rank's output, then hands on what it got."""
    n = world_size
    with CollectiveProgram("ring", AllGather(n, 1, False), n) as program:
        forward, back = {}, {}
        for me in range(n):
            following = (me + 1) % n
            forward[me], back[following] = MemoryChannel(following, me), MemoryChannel(me, following)
        for me in range(n):
            following = (me + 1) % n
            mine, theirs = Rank(me).get_output_buffer(), Rank(following).get_output_buffer()
            Rank(me).copy(mine[me : me + 1], Rank(me).get_input_buffer()[0:1], tb=0)
            for step in range(n - 1):
                part = (me - step) % n
                forward[me].put(theirs[part : part + 1], mine[part : part + 1], tb=0)
                forward[me].signal(tb=0)
                back[me].wait(tb=0)
    return program


def main():
    if sys.argv[1:2] == ["-o"]:
        ring(int(sys.argv[3])).write(sys.argv[2])
        return
    communicator = antiphon.communicator.default()
    plan = jit.compile(algo=ring, name="ring", world_size=communicator.world)
    executor = antiphon.Executor(communicator)
    own = np.full(1000, communicator.rank, "float32")
    every = np.zeros(1000 * communicator.world, "float32")
    executor.run(plan, own, every)
    assert (every == np.repeat(np.arange(communicator.world), 1000)).all()
    print(f"rank {communicator.rank} of {communicator.world}: {executor.load(plan).verdict()}, and right")


main()
