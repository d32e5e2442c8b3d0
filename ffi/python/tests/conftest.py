"""What the tests share: plans as values, and the operations of a block."""

import json
import os
from typing import Any

import pytest

from antiphon.language import CollectiveProgram, TestCollective

Plan = dict[str, Any]

# What was tuned and installed on a developer's machine decides in no test, nor in the processes that tests start.
os.environ.setdefault("ANTIPHON_TUNING", "off")
os.environ.setdefault("ANTIPHON_INSTALLED", "off")


def plan(program: CollectiveProgram) -> Plan:
    """The program's plan, as values."""
    return json.loads(program.to_json())


def ops(program: CollectiveProgram, rank: int = 0, tb: int = 0) -> list[dict[str, Any]]:
    """The operations of a thread block."""
    return plan(program)["gpus"][rank]["threadblocks"][tb]["ops"]


@pytest.fixture
def bare():
    """A program of two ranks with 4 chunks each way, whose operations stay as they are recorded."""
    options = {"instr_fusion": False, "auto_sync": False, "compatible": True}
    with CollectiveProgram("bare", TestCollective(2, 4, 4), 2, **options) as program:
        yield program
