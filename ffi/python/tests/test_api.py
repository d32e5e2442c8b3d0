"""The package's interface is the one that was agreed on: `api.txt` has its version, all that `interface.py` finds public, and a seal,
without which an edit by hand, or a merge, could change it under the same version.

Whoever changes it raises VERSION, says in CHANGELOG.md what "Python interface M.m" has, and writes the file anew:
`ANTIPHON_WRITE_API=1 pytest test_api.py`.
"""

import ast
import hashlib
import os
from pathlib import Path

import interface
import pytest

VERSION = (0, 21)
"""Of the interface: the first number is raised by what may break a program, the second by additions; before 1.0 by either."""

AGREED = Path(__file__).parent / "api.txt"
CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"
WRITE = "ANTIPHON_WRITE_API"


def version(lines):
    """The version that an agreement begins with."""
    major, minor = lines[0].removeprefix("version ").split(".")
    return int(major), int(minor)


def seal(agreed):
    """The line behind an agreement, of all that is in it."""
    return "seal " + hashlib.sha256("\n".join(agreed).encode()).hexdigest()[:16]


def unsealed(text):
    """What was agreed on; None if that was changed by hand."""
    *lines, last = text.splitlines() or [""]
    return lines if last == seal(lines) else None


def unannounced(old, new):
    """Why an interface may not take the place of another; None if it may."""
    was, now = version(old), version(new)
    gone, added = sorted(set(old[1:]) - set(new[1:])), sorted(set(new[1:]) - set(old[1:]))
    if gone and was[0] > 0:
        announced = now[0] > was[0]
    elif gone or added:
        announced = now > was
    else:
        announced = now == was
    if announced:
        return None
    return "\n  ".join([f"version {was} became {now}", "gone or changed:", *gone, "new:", *added])


def test_the_interface_is_the_one_agreed_on():
    new = ["version {}.{}".format(*VERSION), *interface.public()]
    old = unsealed(AGREED.read_text(encoding="utf-8"))
    assert old is not None, f"{AGREED.name} was changed by hand, or merged: take back what it was, and have it written"
    if os.environ.get(WRITE):
        why = unannounced(old, new)
        assert why is None, f"raise VERSION in test_api.py first: {why}"
        AGREED.write_text("\n".join([*new, seal(new)]) + "\n", encoding="utf-8")
        return
    assert old == new, (
        f"the interface is not that of {AGREED.name}: "
        f"{unannounced(old, new) or 'in its order, or announced but not written'}\n"
        f"raise VERSION in test_api.py, say in CHANGELOG.md what it has, then {WRITE}=1 pytest {Path(__file__).name}"
    )


def test_the_version_is_announced():
    said = "Python interface {}.{}".format(*VERSION)
    assert said in CHANGELOG.read_text(encoding="utf-8"), f"CHANGELOG.md does not say what {said!r} has"


def test_an_agreement_that_was_changed_by_hand_is_none():
    lines = ["version 1.2", "f(x)"]
    text = "\n".join([*lines, seal(lines)]) + "\n"
    assert unsealed(text) == lines
    for changed in (text.replace("x", "y"), text.replace("f(x)", "f(x)\ng()"), text.replace("1.2", "1.3"), ""):
        assert unsealed(changed) is None, changed


@pytest.mark.parametrize(
    ("was", "now", "rest", "allowed"),
    [
        ("1.2", "1.2", ["f(x)", "C.a: int"], True),
        ("1.2", "1.3", ["f(x)", "C.a: int"], False),
        ("1.2", "1.2", ["f(x)", "C.a: int", "g()"], False),
        ("1.2", "1.3", ["f(x)", "C.a: int", "g()"], True),
        ("1.2", "1.3", ["f(x, y)", "C.a: int"], False),
        ("1.2", "1.9", ["f(x)"], False),
        ("1.2", "2.0", ["f(x)"], True),
        ("1.2", "1.1", ["f(x)", "C.a: int", "g()"], False),
        ("0.2", "0.2", ["f(x)"], False),
        ("0.2", "0.3", ["f(x)"], True),
        ("0.2", "0.3", ["f(x)", "C.a: int", "g()"], True),
    ],
)
def test_a_change_must_be_announced(was, now, rest, allowed):
    why = unannounced([f"version {was}", "f(x)", "C.a: int"], [f"version {now}", *rest])
    assert (why is None) is allowed, why


def test_what_is_found():
    """Of each kind of thing that the interface has, one."""
    found = set(interface.public())
    expected = [
        "antiphon: jit is the module antiphon._jit",
        "antiphon.code: CodeCall.send",
        "antiphon.comm: CommGroup.my_rank: int",
        "antiphon.communicator: @property Communicator.closed -> bool",
        "antiphon.plan: @dataclass(frozen=True) class Constraint()",
        "antiphon.plan: Constraint(world_size, n_ranks_per_node, dtypes, ops, root)",
        "antiphon.plan: ExecutionPlan.name: str",
        "antiphon.plan: DataType.auto = 255",
        "antiphon.presets: allreduce_nvls(name: str, num_ranks: int) -> CollectiveProgram",
        "antiphon.language.rank: Buffer(rank: int, size: int)",
        "antiphon.language.rank: @property Rank.Semaphore -> Callable[..., Semaphore]",
        "antiphon.topologies: Topology.num_nodes() -> int",
        "antiphon.torch: register() -> None",
        "executor_test: '--in_place', action='store_true'",
        "mscclpp is imported as antiphon",
    ]
    assert [line for line in expected if line not in found] == []
    assert any(line.startswith("antiphon.dsl: jit.compile(algo: Callable[..., Any], name: str | None=None,") for line in found)


def test_no_line_is_written_twice():
    lines = list(interface.public())
    assert sorted(set(lines)) == sorted(lines)


def test_all_public_names_say_what_they_are():
    """But those of the language's own page, and of the compiled half, whose stubs are none."""
    for name in interface.modules():
        home = interface.module(name)
        for exported in [] if name.startswith("antiphon.language") else home.exported():
            for node in home.bound.get(exported, []):
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                    assert ast.get_docstring(node), f"{name}.{exported}"
                for member in node.body if isinstance(node, ast.ClassDef) else []:
                    if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                        assert ast.get_docstring(member), f"{name}.{exported}.{member.name}"
