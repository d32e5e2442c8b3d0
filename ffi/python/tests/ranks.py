"""Ranks for tests: threads of this process, or processes of a script."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from antiphon import Communicator

LIMIT = 180
"""Seconds after which a test's ranks are given up."""


def on_ranks(world, body, **options):
    """What `body(communicator)` returns on each rank; the ranks are threads."""
    with ThreadPoolExecutor(world) as pool:
        ends = Communicator.in_process(world, **{"timeout": LIMIT, **options})
        try:
            return [future.result(LIMIT) for future in [pool.submit(body, end) for end in ends]]
        finally:
            for end in ends:
                end.close()


def place():
    """A meeting place of this host that nobody else has."""
    return f"antiphon-{secrets.token_hex(16)}"


def environment(rank, world, at, **more):
    """The environment of a rank that is a process."""
    said = {"ANTIPHON_RANK": str(rank), "ANTIPHON_WORLD": str(world), "ANTIPHON_COMM_ID": at}
    # One that the system ends says where its threads were.
    return {**os.environ, "PYTHONFAULTHANDLER": "1", **said, **more}


def process(command, folder, environment):
    """A process whose outputs are kept."""
    kept = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, env=environment, **kept)


def outcomes(world, command, folder, python=sys.executable, start=process, **more):
    """The status of each process of a Python command line, one for each rank, and what it prints to each of its two outputs."""
    at = place()
    ranks = []
    try:
        for rank in range(world):
            ranks.append(start([python, *command], folder, environment(rank, world, at, **more)))
        said = [rank.communicate(timeout=LIMIT) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
        # Only now: a wait may raise.
        for rank in ranks:
            rank.wait(LIMIT)
    for rank, (ended, (out, err)) in enumerate(zip(ranks, said)):
        # Shown where a test fails.
        print(f"rank {rank}: {ended.returncode}\n{out}\n{err}")
    return [(rank.returncode, *texts) for rank, texts in zip(ranks, said)]


def processes(world, command, folder, python=sys.executable, start=process, **more):
    """What the processes of a Python command line print, one for each rank, which must all succeed."""
    ended = outcomes(world, command, folder, python, start, **more)
    for rank, (status, out, err) in enumerate(ended):
        assert status == 0, f"rank {rank}: {status}\n{out}\n{err}"
    return [out for _, out, _ in ended]


def run_whole(command, folder, **more):
    """The status of a command that starts others, and what it prints. None of them outlives it."""
    # Each says its lines at once, so that those of several ranks are not mixed.
    buffered = {"PYTHONUNBUFFERED": ""}
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **buffered, **more}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as started:  # fmt: skip
        try:
            out, err = started.communicate(timeout=LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    return started.returncode, out, err
