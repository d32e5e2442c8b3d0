"""The public names of the package, with how they are called, are those agreed on in `api.txt`.

Whoever changes them says so in CHANGELOG.md, and writes the file anew: `ANTIPHON_WRITE_API=1 pytest test_api.py`.
"""

import importlib
import inspect
import os
from enum import Enum
from pathlib import Path

AGREED = Path(__file__).parent / "api.txt"

CALLED = ["antiphon.code", "antiphon.collectives", "antiphon.comm", "antiphon.communicator", "antiphon.errors", "antiphon.plan", "antiphon.utils"]
"""Modules that are written down with all that their names have."""

NAMED = ["antiphon", "antiphon.dsl", "antiphon.language", "antiphon.presets"]
"""Modules of which the names are: what they have is written down elsewhere, or documented in the language's reference."""


def called(name, value):
    """How something is called, in one line."""
    try:
        return f"{name}{inspect.signature(value)}"
    except (TypeError, ValueError):
        return name


def of_class(name, kind):
    """A class: what it derives from, how it is made, and what its objects have."""
    yield f"class {called(name, kind) if not issubclass(kind, (Enum, Exception)) else name}"
    yield f"class {name} is {', '.join(base.__name__ for base in kind.__bases__)}"
    if issubclass(kind, Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in kind)
        return
    for member, value in sorted(vars(kind).items()):
        if member.startswith("_"):
            continue
        if isinstance(value, (classmethod, staticmethod)):
            yield called(f"{name}.{member}", value.__func__)
        elif inspect.isfunction(value):
            yield called(f"{name}.{member}", value)
        else:
            yield f"{name}.{member}"


def public():
    for module in NAMED:
        yield from (f"{module}: {name}" for name in sorted(importlib.import_module(module).__all__))
    for module in CALLED:
        home = importlib.import_module(module)
        for name in sorted(home.__all__):
            value = getattr(home, name)
            lines = of_class(name, value) if inspect.isclass(value) else [called(name, value)]
            yield from (f"{module}: {line}" for line in lines)


def test_the_interface_is_the_one_agreed_on():
    lines = list(public())
    if os.environ.get("ANTIPHON_WRITE_API"):
        AGREED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    agreed = AGREED.read_text(encoding="utf-8").splitlines()
    gone, added = ([line for line in one if line not in other] for one, other in ((agreed, lines), (lines, agreed)))
    assert lines == agreed, f"gone or changed: {gone}; new: {added}; announce it, then ANTIPHON_WRITE_API=1"


def test_all_public_names_say_what_they_are():
    for module in CALLED:
        home = importlib.import_module(module)
        assert home.__doc__
        for name in home.__all__:
            value = getattr(home, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            assert value.__doc__, f"{module}.{name}"
            for member, function in vars(value).items() if inspect.isclass(value) else []:
                if inspect.isfunction(function) and not member.startswith("_"):
                    assert function.__doc__, f"{module}.{name}.{member}"
