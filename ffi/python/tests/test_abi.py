"""What the package says of the C interface is what the interface says of itself."""

import re
from pathlib import Path

import pytest

from antiphon import _abi, _library

AGREED = Path(__file__).parents[2] / "abi" / "antiphon.txt"
LINES = AGREED.read_text(encoding="utf-8").splitlines()


def words(parameter):
    """A parameter without what says nothing of its form: `const`, `struct`, and its name."""
    kind, stars = re.fullmatch(r"((?:\w+ )*?\w+) ?(\**)\w*", parameter.strip()).groups()
    kind = [word for word in kind.split() if word not in ("const", "struct")][0]
    return kind + stars


def declared():
    found = {}
    for line in LINES:
        if declaration := re.fullmatch(r"(.*?)(antiphon_\w+)\((.*)\)", line):
            result, name, parameters = declaration.groups()
            listed = [] if parameters == "void" else [words(part) for part in parameters.split(",")]
            found[name] = (words(result + "x"), " ".join(listed))
    return found


@pytest.mark.parametrize("name", _abi.FUNCTIONS)
def test_functions_are_declared_so(name):
    assert declared()[name] == _abi.FUNCTIONS[name]


@pytest.mark.parametrize("kind", [_abi.Result, _abi.Verdict, _abi.Dtype, _abi.Op, _abi.Switch])
def test_numbers_are_those_of_the_interface(kind):
    name = f"antiphon_{kind.__name__.lower()}"
    listed = [line.removeprefix(f"enum {name}: ") for line in LINES if line.startswith(f"enum {name}: ")]
    assert listed == [f"{name.upper()}_{member.name} = {member.value}" for member in kind]


def test_structures_are_laid_out_so():
    kinds = {"uint64_t": "c_ulong", "int64_t": "c_long", "int32_t": "c_int", "const char *": "c_char_p"}
    for structure, name in ((_abi.Config, "antiphon_config"), (_abi.UniqueId, "antiphon_unique_id")):
        fields = [line.partition(": ")[2] for line in LINES if line.startswith(f"struct {name}: ")]
        said = [
            f"{next(c for c, py in kinds.items() if py == kind.__name__)}{'' if kind.__name__ == 'c_char_p' else ' '}{field}"
            if kind.__name__ in kinds.values() else "char bytes[ANTIPHON_UNIQUE_ID_BYTES]"
            for field, kind in structure._fields_
        ]  # fmt: skip
        assert said == fields
    assert "constant ANTIPHON_UNIQUE_ID_BYTES 128" in LINES


def test_the_version_is_one_the_package_works_with():
    major, minor = (
        int(next(line for line in LINES if line.startswith(f"constant ANTIPHON_ABI_{which} ")).split()[-1])
        for which in ("MAJOR", "MINOR")
    )
    assert major == _abi.MAJOR and minor >= _abi.MINOR
    assert divmod(_library.library().antiphon_abi_version(), 1 << 16) == (major, minor)
