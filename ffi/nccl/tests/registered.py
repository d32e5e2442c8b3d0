"""Plans, a selector and code of Python serve calls of NCCL's interface in the same process.

`registered.py LIBRARY PLAN [FIRST]`, with the plan of an allreduce of four ranks; LIBRARY has NCCL's interface, and is empty where
the process has it already; FIRST is a libantiphon.so that the process has before anybody looks for one.
"""

import array
import ctypes
import json
import sys
import tempfile
import threading

WORLD, COUNT = 4, 1024
FLOAT, SUM = 7, 0
BY_CODE = 100


def ours():
    """The files of libantiphon.so that this process has."""
    with open("/proc/self/maps") as maps:
        files = {line.split(maxsplit=5)[5].strip() for line in maps if "libantiphon" in line}
    return sorted(file for file in files if "libantiphon_nccl" not in file)


class Ranks:
    """All ranks, each driven by a thread."""

    def __init__(self, library):
        self.nccl = ctypes.CDLL(library or None)
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        self.comms = (ctypes.c_void_p * WORLD)()
        assert self.nccl.ncclCommInitAll(self.comms, WORLD, None) == 0

    def destroy(self):
        for comm in self.comms:
            assert self.nccl.ncclCommDestroy(ctypes.c_void_p(comm)) == 0

    def all_reduce(self, grouped):
        """Each rank's result, a sum or the reason of an error, of a call by itself or in a group."""
        said = [None] * WORLD

        def run(rank):
            send, receive = array.array("f", [rank + 1.0] * COUNT), array.array("f", [0.0] * COUNT)
            at = [ctypes.c_void_p(buffer.buffer_info()[0]) for buffer in (send, receive)]
            comm = ctypes.c_void_p(self.comms[rank])
            if grouped:
                assert self.nccl.ncclGroupStart() == 0
            failed = self.nccl.ncclAllReduce(*at, ctypes.c_size_t(COUNT), FLOAT, SUM, comm, None)
            if grouped:
                failed = self.nccl.ncclGroupEnd() or failed
            if failed:
                said[rank] = self.nccl.ncclGetLastError(comm).decode()
            else:
                [said[rank]] = set(receive)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(WORLD)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        return said

    def get(self, sum=10.0, grouped=False):
        said = self.all_reduce(grouped)
        assert said == [sum] * WORLD, said

    def fail(self, part):
        said = self.all_reduce(False)
        assert all(isinstance(reason, str) and part in reason for reason in said), (part, said)


def broken(path):
    """The plan without what its ranks wait by: it cannot be right."""
    with open(path) as file:
        text = json.load(file)
    for rank in text["gpus"]:
        for block in rank["threadblocks"]:
            block["ops"] = [op for op in block["ops"] if op["name"] not in ("wait", "signal", "rlxwait", "rlxsignal")]
    text["name"] = "broken"
    file = tempfile.NamedTemporaryFile("w", suffix=".json")
    json.dump(text, file)
    file.flush()
    return file


def by_code(call):
    """Sums by the plan of a built-in algorithm, and adds what only it would add."""
    call.run(call.load_name("allreduce_hub"))
    elements = (ctypes.c_float * len(call.receive)).from_address(call.receive.address)
    for at in range(COUNT):
        elements[at] += BY_CODE


def main(library, path, first=None):
    if first:
        kept = ctypes.CDLL(first)
        assert kept and ours() == [first], ours()
    ranks = Ranks(library)
    ranks.get()

    from antiphon import Op, code
    from antiphon import plan as plans

    registry = plans.ExecutionPlanRegistry()
    ring = plans.PlanHandle("of-python", "ring", plans.ExecutionPlan(path), tags={"ring"})
    plans.register(ring)
    assert len(ours()) == 1 and ours() == [first or ours()[0]], ours()
    ranks.get()

    asked = []

    def answer(plan):
        def select(known, request):
            asked.append((known["allreduce"], request))
            return plan

        return select

    def were_asked(plans_known):
        """Each rank's call was told of, once."""
        assert len(asked) == WORLD, asked
        for known, request in asked:
            assert known == plans_known and request.dtype == plans.DataType.float32 and request.hints["op"] == Op.sum
            assert request.send_buffer != request.recv_buffer and not request.hints["in_place"]
            assert (request.collective, request.world_size, request.n_ranks_per_node, request.message_size) == (
                "allreduce", WORLD, WORLD, 4 * COUNT)  # fmt: skip
        asked.clear()

    plans.set_selector(answer(None))
    ranks.get()
    were_asked([ring])
    stranger = plans.PlanHandle("1", "stranger", ring.plan)
    plans.set_selector(lambda known, request: stranger)
    ranks.fail("there is no `stranger#1`")
    plans.set_selector(lambda known, request: request.no_such_thing)
    ranks.fail("no attribute 'no_such_thing' (registered.py:")
    plans.set_selector(None)

    # Plans go before code.
    code.register_code("adding", "allreduce", by_code, version=1)
    ranks.get()
    plans.unregister(ring)
    ranks.get(10.0 + BY_CODE)
    ranks.get(10.0 + BY_CODE, grouped=True)
    code.unregister_code("adding")
    ranks.get()

    # What was registered last goes first, unless a selector has another; and what is shown to be wrong is not run.
    with broken(path) as file:
        wrong = plans.PlanHandle("1", "broken", plans.ExecutionPlan(file.name))
        for plan in (ring, wrong):
            registry.register_plan(plan)
        ranks.fail("broken")
        plans.set_selector(answer(ring))
        ranks.get()
        were_asked([ring, wrong])
        plans.set_selector(answer(None))
        ranks.fail("broken")
        plans.set_selector(None)
        for plan in (ring, wrong):
            registry.unregister_plan(plan.id)
    ranks.get()

    # Others wait for what code that fails would have done.
    code.register_code("failing", "allreduce", lambda call: call.no_such_thing)
    ranks.fail("no attribute 'no_such_thing'")
    ranks.destroy()
    # What is left is taken out before Python ends.
    plans.set_selector(answer(None))
    print("registered: ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
