"""The examples of `examples/python`, and what `docs/python.md` shows of them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import LIMIT, environment, place, processes

from antiphon._library import OWN

REPOSITORY = Path(__file__).parents[3]
EXAMPLES = REPOSITORY / "examples" / "python"


def test_a_ring_that_is_written_and_run(tmp_path):
    said = processes(2, [str(EXAMPLES / "ring.py")], tmp_path, ANTIPHON_CACHE_DIR=str(tmp_path))
    assert said == [f"rank {rank} of 2: proven, and right\n" for rank in range(2)]


def test_the_ring_under_a_program_in_cxx(tmp_path):
    if shutil.which("g++") is None:
        assert not os.environ.get("ANTIPHON_NEEDS_C_TOOLS"), "g++ is not there, and ANTIPHON_NEEDS_C_TOOLS is set"
        pytest.skip("SKIP: g++ is not there")
    build = [
        "g++", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", str(EXAMPLES / "client.cpp"),
        "-I", str(REPOSITORY / "ffi/include"), str(OWN), f"-Wl,-rpath,{OWN.parent}", "-o", "client",
    ]  # fmt: skip
    subprocess.run(build, cwd=tmp_path, check=True, timeout=LIMIT)
    subprocess.run([sys.executable, EXAMPLES / "ring.py", "-o", "ring.json", "2"], cwd=tmp_path, check=True, timeout=LIMIT)
    at = place()
    ranks = [
        subprocess.Popen(
            ["./client", "ring.json"], cwd=tmp_path, env=environment(rank, 2, at), stdout=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert said == [f"rank {rank} of 2: right\n" for rank in range(2)]


def test_the_page_shows_the_examples():
    page = (REPOSITORY / "docs/python.md").read_text(encoding="utf-8")
    shown = {"python": "ring.py", "cpp": "client.cpp"}
    for language, file in shown.items():
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        text = (EXAMPLES / file).read_text(encoding="utf-8")
        assert blocks and all(block in text for block in blocks), file
