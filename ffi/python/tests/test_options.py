"""What communicators are asked for, and what the environment says in its place."""

import os
import subprocess
import sys

import pytest
from ranks import LIMIT, on_ranks

from antiphon import Communicator
from antiphon.errors import InvalidArgumentError

ALONE = """
import antiphon
with antiphon.Communicator.from_environment() as communicator:
    print(communicator.rank, communicator.world)
"""


def ended(code, **said):
    """The status of a process with these variables, and what it prints to each of its two outputs."""
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **said}, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    return run.returncode, run.stdout, run.stderr


def test_what_gpus_do_with_plans_is_said_and_checked():
    for said in ("generated", "interpreted", "auto"):
        options = {"kernels": said, "multicast": False, "legacy_ipc": True, "block_threads": 64}
        assert on_ranks(2, lambda communicator: communicator.world, **options) == [2, 2]
    with pytest.raises(InvalidArgumentError, match="allowed auto, generated, interpreted"):
        Communicator.in_process(1, kernels="fast")
    for none in (0, -1, 1 << 32):
        with pytest.raises(InvalidArgumentError, match="block_threads"):
            Communicator.in_process(1, block_threads=none)


def test_a_group_of_one_takes_its_size_alone():
    assert ended(ALONE, ANTIPHON_WORLD="1") == (0, "0 1\n", "")


@pytest.mark.parametrize(
    ("variable", "value"), [("ANTIPHON_CALL_TIMEOUT", "soon"), ("ANTIPHON_KERNELS", "fast"), ("ANTIPHON_WIRE", "pigeon")]
)
def test_what_the_environment_garbles_is_named(variable, value):
    status, _, text = ended(ALONE, ANTIPHON_WORLD="1", **{variable: value})
    assert status == 1 and variable in text and value in text, text
    # A wire is looked for where ranks meet, and none of that name is there.
    assert variable == "ANTIPHON_WIRE" or "InvalidArgumentError" in text, text


def test_what_a_program_names_counts_before_the_environment():
    code = ALONE.replace("()", "(timeout=60, kernels='auto', wire='local')", 1)
    assert "wire='local'" in code
    said = {"ANTIPHON_CALL_TIMEOUT": "soon", "ANTIPHON_KERNELS": "fast", "ANTIPHON_WIRE": "pigeon"}
    assert ended(code, ANTIPHON_WORLD="1", **said) == (0, "0 1\n", "")
