"""Checks on a GPU with CuPy: `python cupy_card.py`. Two ranks are threads of the process, on one GPU.

No test starts it: it needs a card. What it printed where it ran is in docs/measured/.
"""

import threading

import antiphon
import cupy
import numpy

WORLD = 2


def rank(communicator, failures):
    """Every call as one rank, on arrays of CuPy, with and without a stream."""
    try:
        own = communicator.rank
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.arange(1000, dtype="float32") + own
            communicator.all_reduce(x, stream=communicator.adopt(stream.ptr))
            stream.synchronize()
            expected = sum(numpy.arange(1000, dtype="float32") + one for one in range(WORLD))
            assert numpy.array_equal(cupy.asnumpy(x), expected), "all_reduce on a stream"
            gathered = cupy.zeros(WORLD * 10, dtype="int32")
            part = cupy.full(10, own, dtype="int32")
            stream.synchronize()
            communicator.all_gather(part, gathered)
            assert cupy.asnumpy(gathered).tolist() == [0] * 10 + [1] * 10, "all_gather"
        communicator.barrier()
    except BaseException as error:
        failures.append(error)
        communicator.abort(str(error))


def main():
    """Starts the ranks, and says how they did."""
    failures = []
    ranks = antiphon.Communicator.in_process(WORLD, device="cuda:0", timeout=20)
    threads = [threading.Thread(target=rank, args=(one, failures)) for one in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    print(f"CuPy {cupy.__version__}: ok")


if __name__ == "__main__":
    main()
