"""A client that others wrote, NVIDIA's own bindings for Python (nccl4py), on host buffers in several processes.

Started with the library preloaded, and told its path, a number of ranks, and what else rank 0 has to say to the others:
`foreign.py LIBRARY WORLD [RANK ID]`.
"""

import ctypes
import signal
import subprocess
import sys

import numpy as np
from nccl.bindings import nccl

SUM, PROD, MAX, MIN, AVG = (getattr(nccl.RedOp, name) for name in ("Sum", "Prod", "Max", "Min", "Avg"))
TYPES = {np.dtype(name): getattr(nccl.DataType, name.capitalize()) for name in (
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64")}


def at(array):
    return array.ctypes.data


def refused(comm, expected, part, call, *arguments):
    """The call raises what the bindings make of an error, with a reason that has `part` in it."""
    try:
        call(*arguments)
    except nccl.NCCLError as error:
        assert error.status == expected, (error.status, error)
        reason = nccl.get_last_error(comm)
        assert part in reason, reason
        return
    raise AssertionError(f"{call.__name__}{arguments} was not refused")


def values(dtype, count, rank):
    return (1 + (np.arange(count) * 5 + rank * 3) // 2 % 2).astype(dtype)


def collectives(comm, rank, world, dtype, count):
    kind, inputs = TYPES[dtype], [values(dtype, count, other) for other in range(world)]
    # Whole numbers are truncated by an average.
    average = lambda all: (np.sum(all, axis=0, dtype=np.float64) / world).astype(dtype)
    references = {
        SUM: lambda all: np.sum(all, axis=0, dtype=dtype), PROD: lambda all: np.prod(all, axis=0, dtype=dtype),
        MAX: lambda all: np.max(all, axis=0), MIN: lambda all: np.min(all, axis=0), AVG: average,
    }
    root = world - 1
    for op, reference in references.items():
        expected, output = reference(inputs), np.zeros(count, dtype)
        nccl.all_reduce(at(inputs[rank]), at(output), count, kind, op, comm, 0)
        assert np.array_equal(output, expected), (dtype, op)
        in_place = inputs[rank].copy()
        nccl.all_reduce(at(in_place), at(in_place), count, kind, op, comm, 0)
        assert np.array_equal(in_place, expected), (dtype, op)
        output[:] = 0
        nccl.reduce(at(inputs[rank]), at(output), count, kind, op, root, comm, 0)
        assert np.array_equal(output, expected if rank == root else np.zeros(count, dtype)), (dtype, op)
        whole = [values(dtype, count * world, other) for other in range(world)]
        nccl.reduce_scatter(at(whole[rank]), at(output), count, kind, op, comm, 0)
        assert np.array_equal(output, reference(whole)[rank * count:][:count]), (dtype, op)

    gathered, own, whole = np.zeros(count * world, dtype), inputs[rank], values(dtype, count * world, rank)
    nccl.all_gather(at(own), at(gathered), count, kind, comm, 0)
    assert np.array_equal(gathered, np.concatenate(inputs))
    crossed = np.concatenate([values(dtype, count * world, other)[rank * count:][:count] for other in range(world)])
    nccl.allto_all(at(whole), at(gathered), count, kind, comm, 0)
    assert np.array_equal(gathered, crossed)
    one = own.copy()
    nccl.bcast(at(one), count, kind, root, comm, 0)
    assert np.array_equal(one, inputs[root])
    one[:] = 0
    nccl.broadcast(at(own), at(one), count, kind, root, comm, 0)
    assert np.array_equal(one, inputs[root])
    gathered[:] = 0
    nccl.gather(at(own), at(gathered), count, kind, root, comm, 0)
    assert np.array_equal(gathered, np.concatenate(inputs) if rank == root else np.zeros(count * world, dtype))
    nccl.scatter(at(whole), at(one), count, kind, root, comm, 0)
    assert np.array_equal(one, values(dtype, count * world, root)[rank * count:][:count])

    gathered[:] = 0
    nccl.group_start()
    for peer in range(world):
        nccl.send(at(whole[peer * count:]), count, kind, peer, comm, 0)
        nccl.recv(at(gathered[peer * count:]), count, kind, peer, comm, 0)
    nccl.group_end()
    assert np.array_equal(gathered, crossed)


def communicators(comm, rank, world):
    assert (nccl.comm_count(comm), nccl.comm_user_rank(comm)) == (world, rank)
    assert nccl.comm_get_async_error(comm) == nccl.Result.Success
    one, total = np.ones(1, np.int64), np.zeros(1, np.int64)
    half = nccl.comm_split(comm, rank % 2, -rank, 0)
    assert nccl.comm_user_rank(half) == (world - 1 - rank) // 2
    nccl.all_reduce(at(one), at(total), 1, nccl.DataType.Int64, SUM, half, 0)
    assert total[0] == world // 2
    nccl.comm_finalize(half)
    nccl.comm_destroy(half)

    factor = np.array([rank + 1], np.float32)
    op = nccl.red_op_create_pre_mul_sum(at(factor), nccl.DataType.Float32, nccl.ScalarResidence.HostImmediate, comm)
    ones, sums = np.ones(5, np.float32), np.zeros(5, np.float32)
    nccl.all_reduce(at(ones), at(sums), 5, nccl.DataType.Float32, op, comm, 0)
    assert (sums == world * (world + 1) / 2).all()
    nccl.red_op_destroy(op, comm)

    memory = nccl.mem_alloc(4096)
    handle = nccl.comm_register(comm, memory, 4096)
    numbers = np.frombuffer((ctypes.c_char * 4096).from_address(memory), np.int32)
    numbers[0] = 3
    nccl.all_reduce(memory, memory + 4, 1, nccl.DataType.Int32, SUM, comm, 0)
    assert numbers[1] == 3 * world
    nccl.comm_deregister(comm, handle)
    nccl.mem_free(memory)

    refused(comm, nccl.Result.InvalidArgument, "data type", nccl.all_reduce, at(one), at(total), 1, 99, SUM, comm, 0)
    refused(comm, nccl.Result.InvalidArgument, "root", nccl.bcast, at(one), 1, nccl.DataType.Int64, world, comm, 0)
    refused(comm, nccl.Result.InvalidUsage, "grow", nccl.comm_get_unique_id, comm)
    refused(comm, nccl.Result.InvalidUsage, "group", nccl.group_end)


def run(rank, world, name):
    comm = nccl.comm_init_rank(world, name, rank)
    for dtype in TYPES:
        for count in (1, 37, 3000):
            collectives(comm, rank, world, dtype, count)
    communicators(comm, rank, world)
    nccl.comm_finalize(comm)
    nccl.comm_destroy(comm)


def main(library, world, rank=0, name=None):
    signal.alarm(120)
    assert nccl.get_library_path() == library, nccl.get_library_path()
    if name is not None:
        kept = np.frombuffer(bytes.fromhex(name), np.uint8)
        return run(int(rank), int(world), at(kept))
    made = nccl.get_unique_id()
    name = ctypes.string_at(made.ptr, 128).hex()
    command = [sys.executable, __file__, library, world]
    others = [subprocess.Popen([*command, str(other), name]) for other in range(1, int(world))]
    run(0, int(world), made.ptr)
    assert [other.wait() for other in others] == [0] * len(others)
    print(f"foreign: ok by {nccl.__name__} over {library}")


if __name__ == "__main__":
    main(*sys.argv[1:])
