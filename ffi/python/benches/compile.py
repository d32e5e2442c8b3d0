"""How long `python -m antiphon compile` takes for large programs, and how much memory.

`python ffi/python/benches/compile.py` prints, for each program and number of ranks, the least time of three runs of the
whole process, what it takes beside an empty program, its peak memory, and the size of the plan it writes.
"""

import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RUNS = 3


def run(program, *arguments):
    """Seconds, peak memory in bytes and bytes written of one compilation."""
    with tempfile.TemporaryDirectory() as folder:
        plan = os.path.join(folder, "plan.json")
        command = [sys.executable, "-m", "antiphon", "compile", program, *arguments, "-o", plan]
        began = time.perf_counter()
        process = subprocess.Popen(command)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed: {process.returncode}")
        return seconds, usage.ru_maxrss * 1024, os.path.getsize(plan)


def least(program, *arguments):
    results = [run(program, *arguments) for _ in range(RUNS)]
    return min(r[0] for r in results), min(r[1] for r in results), results[0][2]


def main():
    empty = least(os.path.join(HERE, "two_shot_packets.py"), "2")
    print(f"a program of two ranks: {empty[0]:.3f} s, {empty[1] / 1e6:.0f} MB, mostly the interpreter")
    for name in ["two_shot_packets", "ring_alltoall"]:
        for ranks in ["8", "16", "32", "64"]:
            for style in [[], ["--compact"]]:
                seconds, memory, size = least(os.path.join(HERE, f"{name}.py"), ranks, *style)
                words = "compact" if style else "indented"
                print(
                    f"{name:>16} {ranks:>3} ranks, {words:>8}: {seconds:.3f} s, {memory / 1e6:.0f} MB, "
                    f"{size / 1e6:.1f} MB of JSON"
                )


if __name__ == "__main__":
    main()
