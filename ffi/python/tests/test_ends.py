"""What becomes of calls when the interpreter ends, or is interrupted."""

import gc
import os
import signal
import sys
import textwrap
import threading
import time
from contextlib import suppress

import pytest
from ranks import outcomes, place, processes

from antiphon import Communicator, _library, _streams, communicator, executor, register_code, unregister_code
from antiphon.errors import AbortedError, AntiphonError


def test_an_interrupt_that_comes_as_code_begins_fails_its_call(monkeypatch):
    """A function of Python raises it where it begins, before it can catch anything."""
    left, go = [], threading.Event()
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    ends = Communicator.in_process(2, timeout=60)

    def other():
        go.wait()
        # The main thread has let go of the interpreter, so it waits in the library.
        signal.raise_signal(signal.SIGINT)
        with suppress(AntiphonError):
            ends[1].all_reduce(bytearray(8))

    thread = threading.Thread(target=other)
    thread.start()
    register_code("mine", "allreduce", lambda call: None)
    # Whoever starts a program in the background may have it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    # Else it may come in a function that lets go of something, which tells it to nobody.
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(AbortedError, match="code .mine. failed on rank 0: .*KeyboardInterrupt"):
            go.set()
            ends[0].all_reduce(bytearray(8))
    finally:
        gc.enable()
        sys.setswitchinterval(interval)
        thread.join()
        signal.signal(signal.SIGINT, before)
        unregister_code("mine")
    assert not left


CALLS = {
    "all_reduce": lambda rank, x, y, on: rank.all_reduce(x, y, stream=on),
    "all_gather": lambda rank, x, y, on: rank.all_gather(x[:4], y, stream=on),
    "reduce_scatter": lambda rank, x, y, on: rank.reduce_scatter(x, y[:4], stream=on),
    "all_to_all_v": lambda rank, x, y, on: rank.all_to_all_v(x, [4, 4], y, [4, 4], stream=on),
    "all_gather_v": lambda rank, x, y, on: rank.all_gather_v(x[:4], y, [4, 4], stream=on),
    "reduce": lambda rank, x, y, on: rank.reduce(x, y, stream=on),
    "send": lambda rank, x, y, on: rank.send(x, 1, stream=on),
    "receive": lambda rank, x, y, on: rank.receive(x, 1, stream=on),
}


class Interrupted:
    """The library, of which each function is interrupted when it is through."""

    def __getattr__(self, name):
        function = getattr(_library.library(), name)

        def call(*given):
            function(*given)
            raise KeyboardInterrupt

        return call


@pytest.mark.parametrize("name", CALLS)
def test_a_stream_keeps_what_an_interrupted_call_uses(name, monkeypatch):
    rank, _ = ends = Communicator.in_process(2)
    stream, x, y = rank.stream(), memoryview(bytearray(8)), memoryview(bytearray(8))
    monkeypatch.setattr(communicator, "library", Interrupted)
    rank._all_reduce = Interrupted().antiphon_all_reduce
    with pytest.raises(KeyboardInterrupt):
        CALLS[name](rank, x, y, stream)
    monkeypatch.undo()
    ((spans),) = stream._kept.values()
    assert any(span.address for span in spans)
    rank.abort()
    with pytest.raises(AbortedError):
        stream.synchronize()
    assert not stream._kept
    for end in ends:
        end.close()


def test_a_stream_that_is_not_waited_for_to_the_end_keeps_all(monkeypatch):
    (rank,) = Communicator.in_process(1)
    stream = rank.stream()
    rank.all_reduce(bytearray(8), stream=stream)
    # What other tests have left is not to be given back meanwhile.
    gc.collect()
    monkeypatch.setattr(_streams, "library", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        stream.synchronize()
    assert len(stream._kept) == 1
    # Nobody refers to it any more, and it is looked for whether its calls are complete.
    _streams._left.clear()
    kept = {0: bytearray(8)}
    with pytest.raises(KeyboardInterrupt):
        _streams._leave(0, os.getpid(), kept)
    monkeypatch.undo()
    assert [left for _, left in _streams._left] == [kept]
    _streams._left.clear()


def test_a_plan_that_is_interrupted_leaves_its_stream_the_buffers(monkeypatch):
    (rank,) = Communicator.in_process(1)
    stream, x = rank.stream(), bytearray(8)
    loader = executor.Loader(rank)
    plan = loader.load_name("allreduce_ring", True, 0)
    monkeypatch.setattr(executor, "library", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.run(plan, memoryview(x).cast("f"), None, None, stream)
    assert len(stream._kept) == 1
    monkeypatch.undo()
    stream.synchronize()


def test_buffers_of_calls_under_way_outlive_a_program_that_ends_by_an_exception(monkeypatch):
    (rank,) = Communicator.in_process(1)
    stream = rank.stream()
    monkeypatch.setattr(_library, "ends_by_exception", lambda: True)
    before = sys.getrefcount(stream._kept)
    _library._end()
    # Not in what is asserted, which refers to it as well.
    after = sys.getrefcount(stream._kept)
    assert after == before + 1 and not stream.closed


def test_an_interrupt_while_ranks_meet_leaves_no_communicator(monkeypatch):
    left = []
    monkeypatch.setattr(communicator, "library", Interrupted)
    monkeypatch.setattr(_library.library(), "antiphon_communicator_destroy", left.append)
    with pytest.raises(KeyboardInterrupt):
        Communicator.from_place(place(), 0, 1)
    monkeypatch.undo()
    (value,) = left
    assert not _library.library().antiphon_communicator_destroy(value)


def script(folder, code):
    (folder / "program.py").write_text(textwrap.dedent(code))
    return ["program.py"]


@pytest.mark.parametrize("raises", [False, True], ids=["normally", "by an exception"])
def test_the_interpreter_may_end_while_code_serves_a_thread(raises, tmp_path):
    code = """
        import threading, time, antiphon
        begun = threading.Semaphore(0)

        def serve(call):
            begun.release()
            # Others go on meanwhile.
            for _ in range(3):
                time.sleep(0.002)
            print("served\\n", end="", flush=True)

        antiphon.register_code("mine", "allreduce", serve)
        ranks = antiphon.Communicator.in_process(2)
        for rank in ranks:
            threading.Thread(target=rank.all_reduce, args=(bytearray(8),), daemon=True).start()
        for _ in ranks:
            begun.acquire()
        RAISES
    """.replace("RAISES", 'raise ValueError("boom")' if raises else "")
    ((status, out, _),) = outcomes(1, script(tmp_path, code), tmp_path)
    assert (status, out) == (int(raises), "served\n" * 2)


def test_the_interpreter_may_end_while_a_call_that_code_would_serve_waits(tmp_path):
    code = """
        import threading, time, antiphon
        antiphon.register_code("mine", "allreduce", lambda call: None)
        ranks = antiphon.Communicator.in_process(2)
        begun = threading.Event()

        def call():
            begun.set()
            ranks[0].all_reduce(bytearray(8))

        threading.Thread(target=call, daemon=True).start()
        begun.wait()
        # Mostly it waits by then, which nobody says.
        time.sleep(0.2)
    """
    ((status, out, _),) = outcomes(1, script(tmp_path, code), tmp_path)
    assert (status, out) == (0, "")


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_processes_of_multiprocessing_leave_in_good_order_and_are_known_to_raise(start, tmp_path):
    code = """
        import multiprocessing.util, secrets, sys
        import antiphon

        def told():
            print("raised:", antiphon._library._raised, flush=True)

        def rank(place, number, raises):
            global comm
            comm = antiphon.Communicator.from_place(place, number, 2, timeout=60)
            comm.barrier()
            if number == 0:
                multiprocessing.util.Finalize(None, told, exitpriority=-2)
                if raises:
                    raise ValueError("boom")
                return
            try:
                comm.barrier()
            except antiphon.errors.AntiphonError as error:
                assert raises or "left without taking part" in str(error), error

        if __name__ == "__main__":
            start = multiprocessing.get_context(sys.argv[1])
            for raises in (False, True):
                place = f"antiphon-{secrets.token_hex(16)}"
                ranks = [start.Process(target=rank, args=(place, number, raises)) for number in range(2)]
                for each in ranks:
                    each.start()
                for each in ranks:
                    each.join()
                print([each.exitcode for each in ranks])
    """
    assert processes(1, [*script(tmp_path, code), start], tmp_path) == ["raised: False\n[0, 0]\nraised: True\n[1, 0]\n"]


def test_code_returns_when_what_other_threads_run_in_its_call_has(tmp_path):
    """The library takes back then what loads and runs plans."""
    ends, begun, going = Communicator.in_process(2, timeout=60), threading.Event(), []

    def serve(call):
        if call.rank == 1:
            assert begun.wait(60)
            return

        def run(loader):
            begun.set()
            time.sleep(0.2)
            going.append("over")

        thread = threading.Thread(target=lambda: call._use(run))
        thread.start()
        assert begun.wait(60)

    def body(rank):
        rank.all_reduce(bytearray(8))
        if rank.rank == 0:
            going.append("returned")

    register_code("mine", "allreduce", serve)
    try:
        others = [threading.Thread(target=body, args=(end,)) for end in ends]
        for other in others:
            other.start()
        for other in others:
            other.join()
    finally:
        unregister_code("mine")
    assert going == ["over", "returned"]


def test_code_that_raises_ends_what_other_threads_run_in_its_call():
    """They wait for what the code's own thread would have done, or a peer's."""
    ends, told, threads = Communicator.in_process(2), [], []

    def serve(call):
        if call.rank == 0:

            def run():
                with pytest.raises(AbortedError, match="code mine failed on rank 0: ValueError: boom"):
                    call.run(loaded)
                told.append("ended")

            loaded, thread = call.load_name("allreduce_ring"), threading.Thread(target=run)
            thread.start()
            threads.append(thread)
            while not call._inside:
                time.sleep(0.001)
            raise ValueError("boom")
        while not threads:
            time.sleep(0.001)
        threads[0].join()

    def body():
        with pytest.raises(AbortedError, match="code .?mine.? failed on rank 0: .*boom"):
            ends[0].all_reduce(bytearray(8))
        told.append("failed")

    register_code("mine", "allreduce", serve)
    try:
        other = threading.Thread(target=body)
        other.start()
        # Its code does what it shall.
        ends[1].all_reduce(bytearray(8))
        other.join()
    finally:
        unregister_code("mine")
    assert told == ["ended", "failed"]


def test_an_interrupt_in_what_code_is_given_leaves_nobody_in_it():
    """Those that are in it are waited for, without a limit."""
    (rank,), interrupts = Communicator.in_process(1), []

    def interrupt(number, frame):
        raise KeyboardInterrupt

    def serve(call):
        for turn in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 * (turn % 30 + 1))
                while True:
                    call.load_name("allreduce_ring")
            except KeyboardInterrupt:
                interrupts.append(len(call._inside))

    before = signal.signal(signal.SIGALRM, interrupt)
    register_code("mine", "allreduce", serve)
    try:
        rank.all_reduce(bytearray(8))
    finally:
        signal.signal(signal.SIGALRM, before)
        unregister_code("mine")
    assert interrupts == [0] * 300


def test_code_is_served_by_a_package_of_which_nothing_is_compiled(tmp_path):
    code = """
        import sys, threading
        sys.modules["antiphon._native"] = None
        import antiphon
        from antiphon import _registry
        assert _registry.Guarded.__module__ == "antiphon._registry"
        antiphon.register_code("mine", "allreduce", lambda call: 1 // 0)
        (rank,) = antiphon.Communicator.in_process(1)
        try:
            rank.all_reduce(bytearray(8))
        except antiphon.errors.AbortedError as error:
            print("ZeroDivisionError" in str(error))
    """
    assert processes(1, script(tmp_path, code), tmp_path) == ["True\n"]
