"""What the package says of the C interface is what the interface says of itself."""

import ctypes
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


def test_the_page_lists_the_functions_that_are_not_used():
    page = (Path(__file__).parents[3] / "docs/python.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(antiphon_\w+)`", page.partition("Python lacks")[2].partition("\n## ")[0])
    assert sorted(listed) == sorted(declared().keys() - _abi.FUNCTIONS.keys())
    package = Path(_abi.__file__).parent
    said = "".join(file.read_text(encoding="utf-8") for file in package.glob("*.py") if file.name != "_abi.py")
    assert [name for name in _abi.FUNCTIONS if name not in said] == []


@pytest.mark.parametrize("kind", [_abi.Result, _abi.Verdict, _abi.Dtype, _abi.Op, _abi.Switch])
def test_numbers_are_those_of_the_interface(kind):
    name = f"antiphon_{kind.__name__.lower()}"
    listed = [line.removeprefix(f"enum {name}: ") for line in LINES if line.startswith(f"enum {name}: ")]
    assert listed == [f"{name.upper()}_{member.name} = {member.value}" for member in kind]


def test_an_id_is_laid_out_so():
    fields = [line.partition(": ")[2] for line in LINES if line.startswith("struct antiphon_unique_id: ")]
    assert fields == ["char bytes[ANTIPHON_UNIQUE_ID_BYTES]"] and "constant ANTIPHON_UNIQUE_ID_BYTES 128" in LINES
    assert ctypes.sizeof(_abi.UniqueId) == 128


@pytest.mark.parametrize("structure", [_abi.Config, _abi.Terms, _abi.Question, _abi.Code, _abi.CodeCall])
def test_structures_with_addresses_have_the_same_fields(structure):
    """Of what their fields refer to, but for texts, the package knows the address alone."""
    name = re.sub("(?<!^)C", "_C", structure.__name__).lower()
    said = [line.removeprefix(f"struct antiphon_{name}: ") for line in LINES if line.startswith(f"struct antiphon_{name}: ")]
    numbers = {"uint64_t": "c_ulong", "int64_t": "c_long", "int32_t": "c_int", "uint32_t": "c_uint"}
    functions = {"antiphon_run_function": _abi.RUN, "antiphon_destroy_function": _abi.DESTROY}
    assert len(said) == len(structure._fields_)
    for line, (field, kind) in zip(said, structure._fields_, strict=True):
        words, _, last = line.replace("*", "* ").rpartition(" ")
        if words in functions:
            assert (last, functions[words]) == (field, kind)
            continue
        pointer = "c_char_p" if words.strip() == "const char *" else "c_void_p"
        assert (last, numbers.get(words, pointer)) == (field, kind.__name__)


FUNCTIONS = {
    "antiphon_select_function": (
        _abi.SELECT, "int32_t", "void *context, const struct antiphon_question *question, char *answer"),
    "antiphon_run_function": (_abi.RUN, "int32_t", "void *context, const struct antiphon_code_call *call"),
    "antiphon_destroy_function": (_abi.DESTROY, "void", "void *context"),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_the_program_are_called_so(name):
    kind, result, parameters = FUNCTIONS[name]
    assert f"typedef {result} (*{name})({parameters})" in LINES
    assert kind._restype_ is (None if result == "void" else ctypes.c_int32)
    assert len(kind._argtypes_) == parameters.count(",") + 1
    assert f"constant ANTIPHON_ANSWER_BYTES {_abi.ANSWER_BYTES}" in LINES


def test_the_version_is_one_the_package_works_with():
    major, minor = (
        int(next(line for line in LINES if line.startswith(f"constant ANTIPHON_ABI_{which} ")).split()[-1])
        for which in ("MAJOR", "MINOR")
    )
    assert major == _abi.MAJOR and minor >= _abi.MINOR
    assert divmod(_library.library().antiphon_abi_version(), 1 << 16) == (major, minor)
