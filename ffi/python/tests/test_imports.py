"""Programs that import by star from the language's modules, as most that are published do."""

import importlib
import json
import re
from pathlib import Path

import pytest

PROGRAMS = sorted((Path(__file__).parent / "programs" / "current").glob("*.py"))
ALWAYS = ["channel", "rank", "general", "program", "collectives"]
"""The modules that such a program begins with, whatever it uses of them."""

EXPORTS = {
    "channel": "MemoryChannel PortChannel SwitchChannel BufferType SyncType ReduceOperationType ThreadBlockGroup Chunk",
    "rank": "Rank Buffer BaseBuffer Semaphore BufferType SyncType ReduceOperationType ThreadBlockGroup Chunk",
    "general": "JSON get_program",
    "program": """CollectiveProgram AlgoSpec ReplicationPolicy MemoryChannel PortChannel SwitchChannel Semaphore BaseBuffer
        AllGather AllReduce AllToAll ReduceScatter SendRecv TestCollective Collective BufferType SyncType ThreadBlockGroup""",
    "collectives": "Collective TestCollective AllGather AllReduce BaseBuffer BufferType",
    "loop": "LoopIterationContext get_program",
    "thread_block_group": "ThreadBlockGroup",
    "utils": "AlgoSpec ReplicationPolicy",
    "internal.globals": "get_program",
}


def printed(source, name, capsys):
    """The plan that a program prints."""
    exec(compile(source, name, "exec"), {"__name__": "__main__"})
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("package", ["antiphon", "mscclpp"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_imports_by_star(program, package, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [str(program)])
    source = program.read_text(encoding="utf-8")
    modules = [*ALWAYS, *(["loop"] if "language.loop" in source else [])]
    stars = "".join(f"from {package}.language.{module} import *\n" for module in modules)
    bare = re.sub(r"^from antiphon\.language.*\n", "", source, flags=re.MULTILINE)
    assert bare.count("import ") == bare.count("import argparse")
    assert printed(stars + bare, "by star", capsys) == printed(source, "by name", capsys)


@pytest.mark.parametrize("package", ["antiphon", "mscclpp"])
@pytest.mark.parametrize("module", EXPORTS)
def test_a_star_gives_what_programs_rely_on(module, package):
    names = {}
    exec(f"from {package}.language.{module} import *", names)
    found = importlib.import_module("antiphon.language")
    assert {name: names.get(name) for name in EXPORTS[module].split()} == {
        name: getattr(found, name) for name in EXPORTS[module].split()
    }


def test_names_are_imported_from_where_they_are_used():
    from mscclpp.language.channel import BufferType, MemoryChannel, SwitchChannel, SyncType
    from mscclpp.language.internal.globals import get_program

    import antiphon.language as language

    expected = (language.BufferType, language.MemoryChannel, language.SwitchChannel, language.SyncType)
    assert (BufferType, MemoryChannel, SwitchChannel, SyncType) == expected
    assert get_program is language.get_program
