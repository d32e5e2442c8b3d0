"""A rank of several, of which those end whose numbers are given: the others find out who, and go on. docs/recovery.md shows how."""

import os
import signal
import sys

import numpy as np

from antiphon import Communicator
from antiphon.errors import AbortedError, PeerLostError

how, *victims = sys.argv[1], *(int(rank) for rank in sys.argv[2:])
whole = Communicator.from_environment()
assert whole.lost() == []


def end():
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(3)


def total(communicator):
    x = np.ones(1000, "int32")
    communicator.all_reduce(x)
    assert (x == communicator.world).all()


def without_the_lost(whole):
    whole.abort("a rank is lost")
    while True:
        lost = whole.lost()
        try:
            return whole.subset(rank for rank in range(whole.world) if rank not in lost)
        except (PeerLostError, AbortedError):
            pass  # A rank of the list was lost as well, or others found that it is.


try:
    while True:
        total(whole)
        if whole.rank == victims[0]:
            end()
except AbortedError as error:
    assert error.peer not in (whole.rank, victims[0])
except PeerLostError as error:
    assert error.peer in victims
# The second victim ends when the others are about to go on without the first.
if whole.rank in victims:
    end()
rest = without_the_lost(whole)
assert whole.lost() == sorted(victims) and rest.lost() == []
for _ in range(10):
    total(rest)
rest.barrier()
print(rest.rank, rest.world)
