"""Ranks that are processes: how they find each other, and what they do when one goes."""

import importlib.util
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import textwrap

import pytest
from ranks import outcomes, processes

import antiphon
from antiphon.errors import AntiphonError

SUM = """
    import numpy as np, antiphon
    x = np.full(1000, antiphon.communicator.default().rank + 1, "float32")
    antiphon.all_reduce(x)
    print(x[0], x[999])
"""


def on_processes(world, code, folder, *arguments, **more):
    (folder / "rank.py").write_text(textwrap.dedent(code))
    return processes(world, ["rank.py", *map(str, arguments)], folder, **more)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.parametrize("world", [2, 3])
def test_a_sum_over_processes(world, tmp_path):
    total = float(world * (world + 1) // 2)
    assert on_processes(world, SUM, tmp_path) == [f"{total} {total}\n"] * world


def test_gathered_blocks_over_processes_and_nodes(tmp_path):
    code = """
        import os, numpy as np
        rank = int(os.environ["ANTIPHON_RANK"])
        os.environ["ANTIPHON_HOSTID"] = f"node {rank // int(os.environ['EACH'])}"
        import antiphon
        counts, out = [3, 0, 2, 1], np.zeros(6, "int16")
        antiphon.all_gather_v(np.full(counts[rank], rank + 1, "int16"), out, counts)
        own = np.where(out == rank + 1, out, 0).astype("int16")
        antiphon.all_gather_v(None, own, counts)
        print(out.tolist() == own.tolist() == [1, 1, 1, 3, 3, 4])
    """
    for each in ("4", "2"):
        assert on_processes(4, code, tmp_path, EACH=each) == ["True\n"] * 4


EVERY = """
    import os, pathlib, numpy as np
    number = os.environ["ANTIPHON_RANK"]
    if "ALONE" in os.environ:
        os.environ["ANTIPHON_HOSTID"] = f"node {number}"
    import antiphon
    from antiphon import Op

    called, checks = set(), []

    def call(name, *given, **named):
        called.add(name)
        return getattr(antiphon, name)(*given, **named)

    def check(name, got, expected):
        checks.append((name, got, np.array(expected, "int32")))

    def every(turn, own, **over):
        "Each function, of three ranks that have six numbers; over the communicator and the stream that are given."
        rank, root = own.rank, 2
        each = [((np.arange(6) * 3 + other * 7) % 11 + 1).astype("int32") for other in range(3)]
        mine, empty, block = each[rank], lambda count: np.zeros(count, "int32"), slice(2 * rank, 2 * rank + 2)
        check("all_reduce", call("all_reduce", mine, empty(6), Op.max, **over), np.max(each, axis=0))
        check("all_gather", call("all_gather", mine, empty(18), **over), np.concatenate(each))
        check("reduce_scatter", call("reduce_scatter", mine, empty(2), Op.min, **over), np.min(each, axis=0)[block])
        check("all_to_all", call("all_to_all", mine, empty(6), **over), np.concatenate([part[block] for part in each]))
        counts, begins, got = [1 + (rank + other) % 2 for other in range(3)], [4, 2, 0], empty(6)
        call("all_to_all_v", mine, counts, got, counts, send_offsets=begins, receive_offsets=[0, 2, 4], **over)
        expected = empty(6)
        for other, count in enumerate(counts):
            expected[2 * other : 2 * other + count] = each[other][begins[rank] : begins[rank] + count]
        check("all_to_all_v", got, expected)
        parts = [part[:count] for part, count in zip(each, [1, 0, 3])]
        got = call("all_gather_v", parts[rank].copy(), empty(6), [1, 0, 3], receive_offsets=[5, 0, 1], **over)
        check("all_gather_v", got, [0, *parts[2], 0, *parts[0]])
        check("broadcast", call("broadcast", mine.copy(), root, **over), each[root])
        got = [call("reduce", mine, empty(6) if rank == root else None, Op.prod, root, **over)]
        got.append(call("gather", mine, empty(18) if rank == root else None, root, **over))
        if rank == root:
            check("reduce", got[0], np.prod(each, axis=0))
            check("gather", got[1], np.concatenate(each))
        assert rank == root or got == [None, None]
        check("scatter", call("scatter", mine if rank == root else None, empty(2), root, **over), each[root][block])
        if rank > 0:
            check("receive", call("receive", empty(6), rank - 1, **over), each[rank - 1])
        if rank < 2:
            call("send", mine, rank + 1, **over)
        before = (rank - 1) % 3
        check("send_receive", call("send_receive", mine, (rank + 1) % 3, empty(6), before, **over), each[before])
        if over.get("stream"):
            over["stream"].synchronize()
        for name, got, expected in checks:
            np.testing.assert_array_equal(got, expected, name)
        checks.clear()
        # Nobody is through before all have come.
        pathlib.Path(f"{turn} {rank}").touch()
        call("barrier", over.get("communicator"))
        assert all(pathlib.Path(f"{turn} {other}").exists() for other in range(3))

    first = antiphon.communicator.default()
    every("by default", first)
    every("on a stream", first, stream=first.stream())
    # In the other order, so that it shows whose ranks are counted.
    turned = first.split(0, key=first.world - first.rank)
    assert turned.rank == 2 - first.rank
    every("turned", turned, communicator=turned)
    every("turned, on a stream", turned, communicator=turned, stream=turned.stream())
    print(called == set(antiphon.collectives.__all__))
"""


@pytest.mark.parametrize("nodes", [{}, {"ALONE": "1"}], ids=["one node", "three nodes"])
def test_every_function_of_the_package(nodes, tmp_path):
    assert on_processes(3, EVERY, tmp_path, **nodes) == ["True\n"] * 3


def test_a_group_by_a_place(tmp_path):
    code = """
        import sys, numpy as np
        from mscclpp import CommGroup, Executor, ExecutionPlan, DataType
        place, rank = sys.argv[1], int(__import__("os").environ["ANTIPHON_RANK"])
        group = CommGroup(interfaceIpPortTrio=place, rank=rank, size=2)
        group.barrier()
        x = group.communicator.all_reduce(np.array([group.my_rank + 1]))
        print(group.my_rank == rank, group.nranks, group.nranks_per_node, x[0])
    """
    place = f"lo:127.0.0.1:{free_port()}"
    said = on_processes(2, code, tmp_path, place, ANTIPHON_SECRET=secrets.token_hex(16))
    assert said == ["True 2 2 3\n"] * 2


def test_a_group_on_two_nodes(tmp_path):
    code = """
        import os, sys, numpy as np
        rank = int(os.environ["ANTIPHON_RANK"])
        os.environ["ANTIPHON_HOSTID"] = f"node {rank}"
        from antiphon import CommGroup
        group = CommGroup(interfaceIpPortTrio=sys.argv[1], rank=rank, size=2)
        print(group.nranks_per_node, group.communicator.all_reduce(np.array([rank + 1.0]))[0])
    """
    place = f"127.0.0.1:{free_port()}"
    assert on_processes(2, code, tmp_path, place, ANTIPHON_INSECURE="1") == ["1 3.0\n"] * 2


REFUTED = pathlib.Path(__file__).parents[3] / "examples" / "refuted" / "sendrecv_without_nop_2.json"


def test_a_group_takes_what_communicators_take(tmp_path):
    """A plan that is refuted is loaded where nobody verifies."""
    code = """
        import os, sys
        from antiphon import CommGroup, ExecutionPlan, Executor
        rank = int(os.environ["ANTIPHON_RANK"])
        for turn, options in enumerate([{"verification": False, "timeout": 60}, {}]):
            with CommGroup(interfaceIpPortTrio=f"{sys.argv[1]}{turn}", rank=rank, size=2, **options).communicator as communicator:
                try:
                    print(Executor(communicator).load(ExecutionPlan(sys.argv[2])).verdict())
                except RuntimeError as error:
                    print(type(error).__name__)
    """
    said = on_processes(2, code, tmp_path, f"file:{tmp_path}/meet", REFUTED, ANTIPHON_SECRET=secrets.token_hex(16))
    assert said == ["not verified\nPlanRefutedError\n"] * 2


def test_a_group_of_one_by_mpi(monkeypatch):
    class Alone:
        def Get_rank(self):
            return 0

        def Get_size(self):
            return 1

        def bcast(self, id, root):
            return id

    formed, given = antiphon.Communicator.from_id, []
    monkeypatch.setattr(antiphon.Communicator, "from_id", lambda *who, **options: given.append(options) or formed(*who, **options))
    group = antiphon.CommGroup(mpi_comm=Alone(), timeout=5, verification=False)
    assert (given[0]["timeout"], given[0]["verification"], given[0]["device"]) == (5, False, None)
    assert (group.nranks_per_node, group.nranks_per_ipc_domain, group.ipc_domain_n_ranks) == (1, 1, 1)
    for name, text in {"bootstrap": "`communicator`", "my_ib_device": "ANTIPHON_HCA", "send": "communicator.send",
                       "recv": "communicator.receive", "make_connection": "Executor"}.items():  # fmt: skip
        with pytest.raises(AttributeError, match=f"CommGroup has no attribute '{name}': .*{text}"):
            getattr(group, name)
    with pytest.raises(AttributeError, match="^CommGroup has no attribute 'nothing'$"):
        group.nothing
    group.communicator.close()


def test_a_group_without_a_secret_is_refused(monkeypatch):
    for name in ("ANTIPHON_SECRET", "ANTIPHON_SECRET_FILE", "ANTIPHON_INSECURE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AntiphonError, match="ANTIPHON_SECRET"):
        antiphon.CommGroup(interfaceIpPortTrio="127.0.0.1:1", rank=0, size=2)


def test_a_group_by_mpi(tmp_path):
    """By communicators of mpi4py: of all processes, and of those with odd numbers the other way round."""
    code = """
        import numpy as np
        from mpi4py import MPI
        from antiphon import CommGroup
        everyone = MPI.COMM_WORLD
        group = CommGroup(mpi_comm=everyone)
        assert (group.my_rank, group.nranks) == (everyone.rank, 3)
        total = group.communicator.all_reduce(np.array([group.my_rank + 1]))[0]
        some = everyone.Split(everyone.rank % 2, -everyone.rank)
        part = CommGroup(mpi_comm=some)
        assert (part.my_rank, part.nranks) == (some.rank, some.size)
        numbers = np.zeros(some.size, int)
        part.communicator.all_gather(np.array([everyone.rank]), numbers)
        # By one of them: what several print comes out mixed.
        said = everyone.gather((int(total), numbers.tolist()))
        if everyone.rank == 0:
            print(said)
    """
    launcher = pathlib.Path(sys.executable).with_name("mpiexec")
    if importlib.util.find_spec("mpi4py") is None or not launcher.exists():
        assert "ANTIPHON_NEEDS_MPI" not in os.environ, "mpi4py and MPICH are not here"
        pytest.skip("needs mpi4py and MPICH beside Python: pip install mpi4py mpich")
    (tmp_path / "rank.py").write_text(textwrap.dedent(code))
    command = [launcher, "-n", "3", sys.executable, "rank.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[(6, [2, 0]), (6, [1]), (6, [2, 0])]\n"


def test_a_rank_that_dies_is_named(tmp_path):
    code = """
        import os, numpy as np, antiphon
        from antiphon.errors import PeerLostError
        comm = antiphon.communicator.default()
        if comm.rank == 1:
            comm.barrier()
            os._exit(0)
        try:
            comm.barrier()
            while True:
                comm.all_reduce(np.ones(10))
        except PeerLostError as error:
            print("rank 1" in str(error))
    """
    assert on_processes(2, code, tmp_path) == ["True\n", ""]


def test_other_threads_run_while_a_call_waits(tmp_path):
    code = """
        import threading, numpy as np, antiphon
        comm = antiphon.communicator.default()
        if comm.rank == 0:
            # Only while the main thread waits in the call does this one get to say so to rank 1.
            with comm.split(0) as side:
                other = threading.Thread(target=lambda: side.barrier())
                other.start()
                comm.all_reduce(np.ones(10))
                other.join()
        else:
            with comm.split(0) as side:
                side.barrier()
                comm.all_reduce(np.ones(10))
        print("done")
    """
    assert on_processes(2, code, tmp_path) == ["done\n"] * 2


def test_a_forked_child_may_end(tmp_path):
    code = """
        import os, sys, numpy as np, antiphon
        comm = antiphon.communicator.default()
        comm.all_reduce(np.ones(10))
        child = os.fork()
        if child == 0:
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        comm.all_reduce(np.ones(10))
        print("done")
    """
    assert on_processes(2, code, tmp_path) == ["done\n"] * 2


def test_a_forked_child_makes_no_calls(tmp_path):
    """Those would be taken for its parent's, whose sums they would spoil."""
    code = """
        import os, numpy as np, antiphon
        comm = antiphon.communicator.default()
        side, stream, memory = comm.split(0), comm.stream(), comm.allocate(64)
        comm.all_reduce(np.ones(4))
        child = os.fork()
        if child == 0:
            x, told = np.full(4, 1000.0), []
            for call in (
                lambda: comm.all_reduce(x), lambda: antiphon.all_reduce(x), lambda: side.all_reduce(x), lambda: comm.barrier(),
                lambda: comm.reduce_scatter(x), lambda: comm.all_gather(x[:2], x), lambda: comm.send(x, 1 - comm.rank),
                lambda: comm.all_reduce(x, stream=stream), lambda: stream.synchronize(), lambda: np.asarray(memory),
                lambda: antiphon.Executor(comm), lambda: comm.abort(), lambda: comm.error(),
            ):
                try:
                    call()
                except antiphon.errors.InvalidArgumentError as error:
                    told.append("made before a fork; allowed in the process that made it; start processes by spawn" in str(error))
            comm.close(), stream.close(), memory.close()
            os._exit(told != [True] * 13)
        assert os.waitpid(child, 0)[1] == 0
        print([int(comm.all_reduce(np.full(4, turn))[0]) for turn in range(4)])
    """
    assert on_processes(2, code, tmp_path) == ["[0, 2, 4, 6]\n"] * 2


PENDING = """
    import ctypes, threading, numpy as np, antiphon
    from antiphon._library import check, library

    def begin(comm, call):
        "Has a thread that nobody waits for make a call, and returns once it is under way."
        threading.Thread(target=call, daemon=True).start()
        done = ctypes.c_int32(1)
        while done.value:
            check(library().antiphon_communicator_query(comm._handle, ctypes.byref(done)))
"""


@pytest.mark.parametrize("streamed", [False, True], ids=["in a thread", "on a stream"])
def test_the_interpreter_may_end_while_calls_are_under_way(streamed, tmp_path):
    code = PENDING + """
    ranks = antiphon.Communicator.in_process(2)
    comm = ranks[0]
    stream = comm.stream() if STREAMED else None
    begin(comm, lambda: comm.all_reduce(np.zeros(1 << 20), stream=stream))
    print("leaving")
    """.replace("STREAMED", str(streamed))
    assert on_processes(1, code, tmp_path) == ["leaving\n"]


def test_peers_are_told_of_an_interpreter_that_ends_while_a_call_is_under_way(tmp_path):
    code = PENDING + """
    comm = antiphon.communicator.default()
    side, error = comm.split(0), None
    if comm.rank == 0:
        begin(side, lambda: side.all_reduce(np.ones(4)))
    comm.barrier()
    if comm.rank == 1:
        try:
            side.all_reduce(np.ones(4))
        except antiphon.errors.PeerLostError as lost:
            error = lost
    elif comm.rank == 2:
        while error is None:
            error = side.error()
    print("rank 0" in str(error))
    """
    assert on_processes(3, code, tmp_path) == ["False\n", "True\n", "True\n"]


def test_memory_is_there_as_long_as_the_interpreter(tmp_path):
    code = """
        import atexit, numpy as np
        shown = []
        atexit.register(lambda: print(shown[0].sum()))
        import antiphon
        (comm,) = antiphon.Communicator.in_process(1)
        memory = comm.allocate(1 << 20)
        shown.append(np.asarray(memory))
        shown[0][:] = 1
    """
    assert on_processes(1, code, tmp_path) == [f"{1 << 20}\n"]


def test_a_library_that_is_loaded_already_is_shared(tmp_path):
    code = """
        import ctypes, sys, antiphon._library as library
        there = ctypes.CDLL(sys.argv[1])
        ours = library.library()
        print(ours._name, ctypes.cast(ours.antiphon_version, ctypes.c_void_p).value
              == ctypes.cast(there.antiphon_version, ctypes.c_void_p).value)
    """
    from antiphon._library import OWN

    (tmp_path / "another.so").write_bytes(OWN.read_bytes())
    more = {"ANTIPHON_LIB_PATH": "/nonexistent"}
    assert on_processes(1, code, tmp_path, tmp_path / "another.so", **more) == ["libantiphon.so.1 True\n"]


def test_a_library_that_is_not_there(tmp_path):
    code = """
        import antiphon
        try:
            antiphon.Communicator.in_process(1)
        except antiphon.errors.UnsupportedError as error:
            print("/nonexistent" in str(error), "ANTIPHON_LIB_PATH" in str(error))
    """
    assert on_processes(1, code, tmp_path, ANTIPHON_LIB_PATH="/nonexistent") == ["True True\n"]


def test_the_package_imports_no_numpy(tmp_path):
    code = """
        import sys, antiphon, antiphon.collectives, antiphon.comm, antiphon.plan
        print("numpy" in sys.modules, "ctypes" in sys.modules)
    """
    (out,) = on_processes(1, code, tmp_path)
    assert out == "False True\n"


def test_a_warning_says_when_where_and_in_which_process(tmp_path):
    (tmp_path / "rank.py").write_text(textwrap.dedent(SUM) + "import os\nprint(os.getpid())\n")
    for status, out, err in outcomes(2, ["rank.py"], tmp_path, ANTIPHON_REPRODUCIBLE="yes", ANTIPHON_LOG="warn"):
        assert status == 0, err
        pid = out.split()[-1]
        form = rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{3}}Z \S+ {pid} WARN ANTIPHON_REPRODUCIBLE does nothing: .*"
        assert any(re.fullmatch(form, line) for line in err.splitlines()), err
