"""One thread block waits for another's release."""

from antiphon.language.collectives import TestCollective
from antiphon.language.general import JSON
from antiphon.language.internal.types import SyncType
from antiphon.language.program import CollectiveProgram
from antiphon.language.rank import Semaphore

with CollectiveProgram("semaphore_test", TestCollective(1, 0, 0), 1):
    semaphore = Semaphore(rank=0, initial_value=0)
    semaphore.acquire(tb=0, data_sync=SyncType.after)
    semaphore.release(tb=1, data_sync=SyncType.before)
    print(JSON())
