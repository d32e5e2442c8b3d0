"""The package's interface as lines of text, read off its source: nothing of it is imported, so that no PyTorch is needed.

Public are the modules without an underscore in their names, and of each what `__all__` names. What such a name is bound to in a
private module, and what a class inherits from a private one, is public there. Of the compiled half the stubs are read, which
`stubtest` holds against it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "antiphon"

Function = (ast.FunctionDef, ast.AsyncFunctionDef)
UNSAID = {"__repr__", "__str__", "__post_init__", "__slots__"}
"""What changes without anybody calling it otherwise."""


@dataclass
class Module:
    """A module's source."""

    name: str
    bound: dict[str, list[ast.AST]] = field(default_factory=dict)
    """What binds a name at the module's top level; several for overloads."""

    @property
    def public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))

    def exported(self) -> list[str]:
        if not self.bound:
            return []
        (said,) = self.bound.get("__all__") or [None]
        assert isinstance(said, ast.Assign), f"{self.name} has no __all__"
        return sorted(self._names(said.value))

    def _names(self, value: ast.AST) -> Iterator[str]:
        """The strings of a list, also of `*sorted(OTHER)`, where OTHER has strings, or keys that are."""
        if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
            for element in value.elts:
                yield from self._names(element)
        elif isinstance(value, ast.Constant):
            yield value.value
        elif isinstance(value, ast.Dict):
            yield from (key.value for key in value.keys)
        elif isinstance(value, ast.Starred):
            yield from self._names(value.value)
        elif isinstance(value, ast.Call) and ast.unparse(value.func) == "sorted":
            yield from self._names(value.args[0])
        elif isinstance(value, ast.Name):
            yield from self._names(self.bound[value.id][0].value)
        else:
            raise AssertionError(f"{self.name}: cannot read {ast.unparse(value)}; have __all__ name its names")

    def text(self, node: ast.AST) -> str:
        """An expression; names that the module gives to types and constants, and does not export, as what they are."""
        return ast.unparse(_Expanded(self).visit(copy.deepcopy(node)))


class _Expanded(ast.NodeTransformer):
    def __init__(self, module: Module) -> None:
        self.module = module

    def visit_Name(self, node: ast.Name) -> ast.AST:
        for said in self.module.bound.get(node.id, []):
            value = getattr(said, "value", None)
            if isinstance(said, (ast.Assign, ast.AnnAssign)) and isinstance(
                value, (ast.BinOp, ast.Constant, ast.Dict, ast.Subscript, ast.Tuple)
            ):
                keys = [key for key in value.keys if key] if isinstance(value, ast.Dict) else []
                return self.visit(copy.deepcopy(ast.List(keys, ast.Load()) if keys else value))
        return node


@cache
def module(name: str) -> Module | None:
    """A module of the package; None if it has none of this name."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    files = [path / "__init__.py", path.with_suffix(".py"), path.with_suffix(".pyi")]
    source = next((file for file in files if file.is_file()), None)
    if name.split(".")[0] != "antiphon" or source is None:
        return None
    made = Module(name)
    _bind(made, ast.parse(source.read_text(encoding="utf-8")).body)
    return made


def _bind(into: Module, statements: list[ast.stmt]) -> None:
    for statement in statements:
        if isinstance(statement, (ast.If, ast.Try)):
            # What type checkers are told comes first.
            _bind(into, [*statement.body, *statement.orelse])
            continue
        names = []
        if isinstance(statement, (ast.ClassDef, *Function)):
            names = [statement.name]
        elif isinstance(statement, (ast.Import, ast.ImportFrom)):
            names = [alias.asname or alias.name for alias in statement.names]
        elif isinstance(statement, ast.Assign):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            names = [statement.target.id]
        for name in names:
            into.bound.setdefault(name, []).append(statement)


def modules() -> list[str]:
    """The public modules."""
    names = []
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return sorted(name for name in names if Module(name).public)


def found(home: Module, name: str) -> tuple[Module, str, list[ast.AST]] | None:
    """Where a name is defined that a module has, and how; None for what lies outside of the package."""
    said = home.bound.get(name)
    if said is None:
        return None
    first = said[0]
    if isinstance(first, ast.ImportFrom):
        source = module(first.module or "")
        original = next(alias.name for alias in first.names if name in (alias.asname, alias.name))
        return found(source, original) if source else None
    return (home, name, said) if not isinstance(first, ast.Import) else None


def imported_module(home: Module, name: str) -> Module | None:
    """The module of the package that a name is bound to."""
    for said in home.bound.get(name, []):
        for alias in said.names if isinstance(said, (ast.Import, ast.ImportFrom)) else []:
            if name not in (alias.asname, alias.name):
                continue
            if isinstance(said, ast.Import):
                return module(alias.name)
            source = module(said.module or "")
            if source and source is not home and alias.name in source.bound:
                # What a package gives a name goes before a module of this name.
                return imported_module(source, alias.name)
            return module(f"{said.module}.{alias.name}")
    return None


def public() -> Iterator[str]:
    """The interface."""
    for name in modules():
        home = module(name)
        for exported in home.exported():
            yield from (f"{name}: {line}" for line in exports(home, exported))
    yield from commands()
    yield from (f"{alias} is imported as {target}" for alias, target in aliases())


def exports(home: Module, name: str) -> Iterator[str]:
    """A name of a module."""
    said = home.bound.get(name)
    inner = imported_module(home, name)
    own = module(f"{home.name}.{name}")
    if said is None or (inner and own and inner.name == own.name):
        assert own, f"{home.name} has no {name}"
        yield f"{name} is a module"
    elif inner is not None:
        yield f"{name} is the module {inner.name}"
        for exported in [] if inner.public else inner.exported():
            yield from (f"{name}.{line}" for line in exports(inner, exported))
    elif isinstance(said[0], ast.ImportFrom) and Module(said[0].module or "").public:
        original = next(alias.name for alias in said[0].names if name in (alias.asname, alias.name))
        yield f"{name} is {said[0].module}.{original}"
    else:
        where = found(home, name)
        assert where is not None, f"{home.name}.{name} is not of the package"
        yield from defined(*where)


def defined(home: Module, name: str, said: list[ast.AST]) -> Iterator[str]:
    """What is bound to a name."""
    for node in said:
        if isinstance(node, Function):
            yield called(home, name, node, method=False)
        elif isinstance(node, ast.ClassDef):
            yield from of_class(home, name, node)
        else:
            yield assigned(home, name, node)


def assigned(home: Module, name: str, node: ast.AST) -> str:
    """A constant, or another name of something."""
    line = f"{name}: {home.text(node.annotation)}" if isinstance(node, ast.AnnAssign) else name
    # Of tables, that they are there.
    told = node.value is not None and not isinstance(node.value, (ast.Dict, ast.DictComp))
    return f"{line} = {home.text(node.value)}" if told else line


def called(home: Module, name: str, node: ast.AST, *, method: bool) -> str:
    """How a function is called, and what it returns."""
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    given = copy.deepcopy(node.args)
    if method and "staticmethod" not in marks:
        # Whoever calls it does not give the object, or the class.
        (given.posonlyargs or given.args).pop(0)
    returned = f" -> {home.text(node.returns)}" if node.returns else ""
    words = "".join(
        f"@{mark} " for mark in marks if mark in ("classmethod", "staticmethod", "property") or mark.startswith("spelled(")
    )
    return f"{words}{name}{'' if 'property' in marks else f'({home.text(given)})'}{returned}"


def of_class(home: Module, name: str, node: ast.ClassDef) -> Iterator[str]:
    """A class: what it derives from, how it is made, and what its objects have."""
    bases = [
        ast.unparse(base)
        for owner, body in lineage(home, node)
        for base in [*body.bases, *body.keywords]
        if not _private(owner, base) and ast.unparse(base) != "type"
    ]
    said = [ast.unparse(mark) for mark in node.decorator_list]
    # That two such cannot both be bases of a class is for type checkers.
    marks = "".join(f"@{mark} " for mark in said if mark != "disjoint_base")
    yield f"{marks}class {name}({', '.join(bases)})"
    if "@dataclass" in marks:
        fields = [said.target.id for said in node.body if isinstance(said, ast.AnnAssign)]
        yield f"{name}({', '.join(fields)})"
    seen: set[str] = set()
    for owner, body in lineage(home, node):
        fresh: dict[str, list[str]] = {}
        for member, line in members(owner, name, body):
            fresh.setdefault(member, []).append(line)
        for member in sorted(fresh, key=lambda member: (not member.startswith("__"), member)):
            if member not in seen:
                yield from fresh[member]
        seen.update(fresh)


def _private(home: Module, base: ast.AST) -> tuple[Module, ast.ClassDef] | None:
    """The private class of the package that a class derives from, or is made by."""
    base = base.value if isinstance(base, ast.keyword) else base
    where = None
    if isinstance(base, ast.Name):
        where = found(home, base.id)
    elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
        source = imported_module(home, base.value.id)
        where = found(source, base.attr) if source else None
    if where is None or not isinstance(where[2][0], ast.ClassDef):
        return None
    return (where[0], where[2][0]) if not where[0].public or where[1].startswith("_") else None


def lineage(home: Module, node: ast.ClassDef) -> Iterator[tuple[Module, ast.ClassDef]]:
    """A class, and the private ones from which it has what it does not say itself."""
    yield home, node
    for base in [*node.bases, *node.keywords]:
        if inner := _private(home, base):
            yield from lineage(*inner)


def members(home: Module, name: str, node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """What a class says that its objects have, by name."""
    own: dict[str, str] = {}
    for said in node.body:
        if isinstance(said, Function):
            if said.name in ("__init__", "__new__"):
                yield "__init__", called(home, name, said, method=True).partition(" -> ")[0]
            elif _told(said.name) and not any(ast.unparse(mark).endswith(".setter") for mark in said.decorator_list):
                line = called(home, f"{name}.{said.name}", said, method=True)
                yield said.name, line
            own.update((attribute, line) for attribute, line in attributes(home, name, said) if attribute not in own)
        elif isinstance(said, (ast.Assign, ast.AnnAssign)):
            targets = said.targets if isinstance(said, ast.Assign) else [said.target]
            for target in targets:
                if isinstance(target, ast.Name) and _told(target.id):
                    yield target.id, assigned(home, f"{name}.{target.id}", said)
    yield from own.items()


def attributes(home: Module, name: str, method: ast.AST) -> Iterator[tuple[str, str]]:
    """The public attributes that a method gives its object."""
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and not node.attr.startswith("_"):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                notes = (note for note in ast.walk(method) if isinstance(note, ast.AnnAssign) and note.target is node)
                note = next(notes, None)
                yield node.attr, f"{name}.{node.attr}" + (f": {home.text(note.annotation)}" if note else "")


def _told(name: str) -> bool:
    return name not in UNSAID and (not name.startswith("_") or name.startswith("__") and name.endswith("__"))


def commands() -> Iterator[str]:
    """The commands of `python -m antiphon`, and their flags."""
    known = module("antiphon.__main__")
    for name in ("COMMANDS", "OTHER_NAMES"):
        yield from (f"python -m antiphon {key.value}" for key in known.bound[name][0].value.keys)
    for command, home in (("install", "antiphon._install"), ("executor_test", "antiphon.executor_test")):
        for node in _nodes(home):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
                node.keywords = [word for word in node.keywords if word.arg not in ("help", "metavar")]
                words = [ast.unparse(word) for word in node.args] + [
                    f"{word.arg}={module(home).text(word.value)}" for word in node.keywords
                ]
                yield f"{command}: {', '.join(words)}"
    flags = {node.value for node in _nodes("antiphon._compile") if isinstance(node, ast.Constant) and _is_flag(node.value)}
    yield from (f"compile: {flag}" for flag in sorted(flags))


def _is_flag(value: object) -> bool:
    return isinstance(value, str) and value.startswith("-") and len(value.strip("-")) > 0 and " " not in value


def _nodes(name: str) -> Iterator[ast.AST]:
    for said in module(name).bound.values():
        for node in said:
            yield from ast.walk(node)


def aliases() -> Iterator[tuple[str, str]]:
    """The names under which the package is imported, too."""
    for name in ("ROOTS", "NAMES"):
        said = module("antiphon._aliases").bound[name][0].value
        yield from ((key.value, value.value) for key, value in zip(said.keys, said.values))
