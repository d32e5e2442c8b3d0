"""The backend of torch.distributed for tensors of GPUs: ranks are processes on the simulated driver, and what PyTorch lacks
without CUDA is stood in for. Run without arguments it starts the ranks."""

import gc
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from datetime import timedelta

WORLD = 2
LIMIT = 240


def rank(number, file):
    import standin
    import torch
    import torch.distributed as dist

    standin.stand_in(number)
    import antiphon.torch  # noqa: F401: it registers the backend.
    from standin import gpu

    dist.init_process_group(
        "antiphon", init_method=f"file://{file}", rank=number, world_size=WORLD, timeout=timedelta(seconds=60)
    )
    group = dist.distributed_c10d._get_default_group()
    store = dist.PrefixStore("test", dist.distributed_c10d._get_default_store())

    def same(tensor, expected):
        assert tensor.is_cuda
        assert torch.equal(tensor, torch.as_tensor(expected, dtype=tensor.dtype)), (tensor, expected)

    def through():
        """Whether the current stream does soon all that it was given."""
        mark, end = torch.cuda.Event(), time.monotonic() + 0.2
        mark.record(torch.cuda.current_stream())
        while not (done := mark.query()) and time.monotonic() < end:
            time.sleep(0.001)
        return done

    own = torch.arange(6.0) + 10 * number
    every = [torch.arange(6.0) + 10 * other for other in range(WORLD)]

    # A call waits for nothing on the host, nor does who waits for it.
    x = gpu(own)
    dist.all_reduce(x)
    same(x, sum(every))
    x = gpu(own)
    if number == 0:
        standin.waits.clear()
        work = dist.all_reduce(x, async_op=True)
        work.wait()
        assert not work.is_completed() and not work.is_success() and not standin.waits
        future = work.get_future()
        assert future.done() and future.value()[0] is x
        # Nor does a future; the streams of what it calls, and of who waits for it, do.
        assert not future.then(lambda _: through()).value()
        with torch.cuda.stream(torch.cuda.Stream()):
            future.wait()
            assert not through()
        assert not standin.waits
        # What the caller's stream is given from here on comes after the call.
        store.set("called", "yes")
    else:
        store.wait(["called"])
        work = dist.all_reduce(x, async_op=True)
        work.wait()
    same(x, sum(every))
    assert work.is_completed() and work.is_success() and work.exception() is None
    work.get_future().wait()
    # Its memory was promised to the stream that it was used in.
    (internal,) = {stream for _, stream in standin.recorded}
    assert (x.data_ptr(), internal) in standin.recorded and internal != 0

    # The tensors go with their last reference, and do not wait for Python's collector.
    gc.disable()
    x = gpu(torch.zeros(5000))
    seen, work = weakref.ref(x), dist.all_reduce(x, async_op=True)
    work.wait()
    del x, work
    assert seen() is None
    gc.enable()

    # In the caller's own stream: the calls come after what it was given, and it after them.
    with torch.cuda.stream(torch.cuda.Stream()):
        for turn in range(3):
            x = gpu(own)
            x.add_(turn)
            dist.all_reduce(x)
            x.mul_(2)
            same(x, (sum(every) + WORLD * turn) * 2)

    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64):
        x = gpu(torch.ones(5, dtype=dtype) * (number + 1))
        dist.all_reduce(x, dist.ReduceOp.MAX if dtype == torch.int8 else dist.ReduceOp.SUM)
        same(x, [2 if dtype == torch.int8 else 3] * 5)
    turned = gpu(torch.arange(6.0).reshape(2, 3)).t()
    dist.all_reduce(turned)
    same(turned, torch.arange(6.0).reshape(2, 3).t() * WORLD)
    # The second reads what the first writes, though nobody has waited for that.
    dist.all_reduce(turned, async_op=True)
    dist.all_reduce(turned)
    same(turned, torch.arange(6.0).reshape(2, 3).t() * WORLD**3)

    for root in range(WORLD):
        x = gpu(own)
        dist.broadcast(x, root)
        same(x, every[root])
        x = gpu(own)
        dist.reduce(x, root)
        same(x, sum(every) if number == root else own)
        parts = [gpu(torch.zeros(6)) for _ in range(WORLD)] if number == root else None
        dist.gather(gpu(own), parts, root)
        [same(part, each) for part, each in zip(parts or [], every)]
        part = gpu(torch.zeros(6))
        dist.scatter(part, [gpu(each + 1) for each in every] if number == root else None, root)
        same(part, own + 1)
    parts = [gpu(torch.zeros(2, 3)) for _ in range(WORLD)]
    dist.all_gather(parts, gpu(own.reshape(2, 3)))
    [same(part, each.reshape(2, 3)) for part, each in zip(parts, every)]
    whole = gpu(torch.zeros(WORLD * 6))
    dist.all_gather(list(whole.chunk(WORLD)), gpu(own))
    same(whole, torch.cat(every))
    whole.zero_()
    group._allgather_base(whole, gpu(own)).wait()
    same(whole, torch.cat(every))
    out = gpu(torch.zeros(6))
    dist.reduce_scatter(out, [gpu(own + other) for other in range(WORLD)])
    same(out, sum(every) + WORLD * number)
    group._reduce_scatter_base(out, gpu(torch.cat([own + other for other in range(WORLD)]))).wait()
    same(out, sum(every) + WORLD * number)
    out = gpu(torch.zeros(WORLD * 2))
    dist.all_to_all_single(out, gpu(torch.arange(WORLD * 2.0) + 100 * number))
    same(out, torch.cat([torch.arange(2.0) + 2 * number + 100 * other for other in range(WORLD)]))
    counts = [number + other + 1 for other in range(WORLD)]
    out = gpu(torch.zeros(sum(counts), 2))
    dist.all_to_all_single(out, gpu(torch.full((sum(counts), 2), float(number))), counts, counts)
    same(out, torch.cat([torch.full((counts[other], 2), float(other)) for other in range(WORLD)]))

    # Coalesced calls, and those of later releases.
    parts, outs = [gpu(own), gpu(own[:2])], [gpu(torch.zeros(12)), gpu(torch.zeros(4))]
    group.allgather_into_tensor_coalesced(outs, parts).wait()
    same(outs[0], torch.cat(every))
    same(outs[1], torch.cat([each[:2] for each in every]))
    group.reduce_scatter_tensor_coalesced(parts, outs).wait()
    same(parts[0], WORLD * every[number])
    group._start_coalescing()
    sums = [gpu(own + turn) for turn in range(3)]
    for each in sums:
        group.allreduce([each])
    assert group._end_coalescing().wait(timedelta(seconds=60))
    [same(each, sum(every) + WORLD * turn) for turn, each in enumerate(sums)]
    options = dist.GatherOptions()
    options.rootRank = 1
    whole = gpu(torch.zeros(WORLD * 6))
    group.gather_single(whole, gpu(own), options).wait()
    same(whole, torch.cat(every) if number == 1 else torch.zeros(WORLD * 6))

    # Transfers in whatever order, told apart by their tags.
    peer = 1 - number
    first, second = gpu(torch.zeros(4)), gpu(torch.zeros(4))
    works = [dist.isend(gpu(torch.full((4,), 10.0 * number + tag)), peer, tag=tag) for tag in (1, 2)]
    works += [dist.irecv(second, peer, tag=2), dist.irecv(first, peer, tag=1)]
    for work in works:
        work.wait()
    same(first, [10 * peer + 1] * 4)
    same(second, [10 * peer + 2] * 4)
    # What a future calls comes after the transfer, and may make others.
    box = gpu(torch.zeros(4))
    if number == 0:
        future = dist.irecv(box, peer, tag=2).get_future()
        # Before it is asked what to call: of a transfer that is in its stream already that is called at once, and waits for the peer.
        store.set("asked", "yes")
        added = future.then(lambda future: dist.send(future.value()[0], peer, tag=1) or future.value()[0] + 1)
        same(added.wait(), [6] * 4)
    else:
        store.wait(["asked"])
        dist.send(gpu(torch.full((4,), 5.0)), peer, tag=2)
        dist.recv(box, peer, tag=1)
    same(box, [5] * 4)

    # A call in a group of the package's would be behind the end that its stream says.
    try:
        with antiphon.group():
            dist.all_reduce(box)
        raise AssertionError("it was not refused")
    except antiphon.errors.UnsupportedError as refused:
        assert "torch.distributed inside a group" in str(refused), refused

    # A barrier is one on the host.
    standin.waits.clear()
    dist.barrier()
    assert len(standin.waits) == 1

    # Tensors on the CPU are the group's as well.
    x = own.clone()
    dist.all_reduce(x)
    assert torch.equal(x, sum(every))

    def fails(text, call):
        try:
            work = call()
            if work is not None:
                work.wait()
        except Exception as error:
            assert str(error) and text in str(error), error
        else:
            raise AssertionError(f"nothing said {text!r}")

    standin.Tensor.gpu = torch.device("cuda", 5)
    fails("allowed one GPU for each rank", lambda: dist.all_reduce(gpu(own)))
    standin.Tensor.gpu = torch.device("cuda", number)
    fails("allowed one device", lambda: group._allgather_base(gpu(torch.zeros(12)), own))
    # A transfer whose ranks cannot meet is one that failed, and so is what comes behind it.
    def nobody(_):
        raise RuntimeError("nobody came")

    lane = antiphon.torch.Lane("alone", nobody, antiphon.torch.Line(gpu(own).device))
    for _ in range(2):
        fails("nobody came", lambda: lane.transfer(lambda *_: None, antiphon.torch.Side(gpu(own)), []))
    lane.close()
    lane.end(antiphon.torch.Limit(LIMIT))
    # What broke the group is said by all that wait for a call, and by every call after.
    broken = dist.new_group(backend="antiphon")
    x = gpu(own)
    dist.all_reduce(x, group=broken)
    if number == 1:
        store.set("made", "yes")
    else:
        store.wait(["made"])
        broken._gpu[1].abort("enough of it")

    def again():
        work = dist.all_reduce(x, group=broken, async_op=True)
        work.wait()
        torch.cuda.current_stream().synchronize()
        work.wait()

    for _ in range(2):
        fails("enough of it", again)
    ended(number, gpu, store, fails)
    print("rank: ok", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def ended(number, gpu, store, fails):
    """Groups that are aborted while somebody waits, or were destroyed."""
    import torch
    import torch.distributed as dist
    from antiphon._torch_meeting import Meeting

    def new():
        group = dist.new_group(backend="antiphon")
        dist.all_reduce(gpu(torch.ones(1)), group=group)
        # The other rank is told of what comes next, and not of this.
        dist.barrier()
        return group

    def meanwhile(call):
        """Has a thread make a call that fails when the group is aborted; what says that it did."""
        told = []
        thread = threading.Thread(target=lambda: (fails("aborted", call), told.append(True)), daemon=True)
        thread.start()

        def done():
            thread.join(LIMIT)
            assert told

        return done

    # A call that is under way, and waited for by the host.
    group = new()
    if number == 0:
        work = dist.all_reduce(gpu(torch.ones(1)), group=group, async_op=True)
        under_way = work._done

        class Aborts:
            """The call's mark, for which whoever asks first aborts the group."""

            asked = False

            def query(self):
                if not self.asked:
                    self.asked = True
                    assert not under_way.query()
                    group.abort()
                return under_way.query()

            native = under_way.native

        work._done = Aborts()
        fails("aborted", lambda: Timed(work))
        assert work._done.asked and work.is_completed() and not work.is_success()
        fails("aborted", lambda: dist.all_reduce(gpu(torch.ones(1)), group=group))
    dist.barrier()
    # A transfer whose partner does not come, and later ones.
    group = new()
    if number == 0:
        done = meanwhile(lambda: dist.irecv(gpu(torch.ones(1)), 1, group=group))
        group.abort()
        done()
        fails("aborted", lambda: dist.irecv(gpu(torch.ones(1)), 1, group=group, tag=9))
    dist.barrier()
    # A first call to which the other rank does not come.
    group = dist.new_group(backend="antiphon")
    if number == 0:
        done = meanwhile(lambda: dist.all_reduce(gpu(torch.ones(1)), group=group))
        group.abort()
        done()
        assert "gpu" not in group._lanes
    dist.barrier()
    # One to whose meeting it does not come.
    group = dist.new_group(backend="antiphon")
    if number == 0:
        done = meanwhile(lambda: dist.all_reduce(gpu(torch.ones(1)), group=group))
        while not isinstance(group._lanes.get("gpu"), Meeting):
            time.sleep(0.001)
        group.abort()
        done()
        store.set("alone", "yes")
    else:
        group._host.submit(lambda communicator: (communicator.broadcast(bytearray(128), 0), communicator.barrier()), None).wait()
        store.wait(["alone"])
    dist.barrier()
    group = new()
    group.shutdown()
    fails("destroyed", lambda: group.allreduce([gpu(torch.ones(1))]))
    fails("destroyed", lambda: group.recv([gpu(torch.ones(1))], 1 - number, 9))
    group.abort()


class Timed:
    """A work that is waited for with a timeout."""

    def __init__(self, work):
        self.work = work

    def wait(self):
        self.work.wait(timedelta(seconds=LIMIT))


def main():
    if sys.argv[1:]:
        rank(int(sys.argv[1]), sys.argv[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, secrets.token_hex(4))
        command = [sys.executable, __file__]
        ranks = [subprocess.Popen([*command, str(number), file], stdout=subprocess.PIPE, text=True) for number in range(WORLD)]
        try:
            said = [each.communicate(timeout=LIMIT)[0] for each in ranks]
        finally:
            for each in ranks:
                each.kill()
                each.wait()
    assert all(each.returncode == 0 for each in ranks), [each.returncode for each in ranks]
    assert said == ["rank: ok\n"] * WORLD, said
    print("tensors: ok")


if __name__ == "__main__":
    main()
