"""Broadcast out of place: the root stores to everyone's output, and copies to its own."""

from mscclpp.language import *
from mscclpp.language.collectives import Broadcast

SIZE, ROOT = 4, 0

with MSCCLPPProgram("broadcast_put", Broadcast(SIZE, 1, False, ROOT), SIZE, 1):
    source = chunk(ROOT, Buffer.input, 0)
    source.copy(ROOT, Buffer.output, 0, sendtb=0)
    for receiver in range(SIZE):
        if receiver != ROOT:
            source.put(receiver, Buffer.output, 0, sendtb=0)
    for receiver in range(SIZE):
        if receiver != ROOT:
            source.signal(receiver, Buffer.output, 0, sendtb=0)
    for receiver in range(SIZE):
        if receiver != ROOT:
            chunk(receiver, Buffer.output, 0).wait(ROOT, Buffer.input, 0, recvtb=0)
    Json()
    assert Check()
