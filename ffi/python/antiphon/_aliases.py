"""The names under which programs import the package: `mscclpp` and `msccl`, as it had been called.

No package of these names is installed. A finder that Python asks last makes them, so they never hide a package that is really
there, whatever finder finds it. A file `antiphon.pth` installs the finder whenever Python starts.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

__all__ = ["install"]

ROOTS = {"mscclpp": "antiphon", "msccl": "antiphon"}
"""The aliases, and the packages that they stand for."""

NAMES = {"msccl.language.mscclpp": "antiphon.language"}
"""Aliases of modules that do not follow from `ROOTS`."""


def _target(name: str) -> str | None:
    """The module that a name is an alias of."""
    for alias, target in NAMES.items():
        if name == alias or name.startswith(alias + "."):
            return target + name[len(alias) :]
    root, dot, rest = name.partition(".")
    return ROOTS[root] + dot + rest if root in ROOTS else None


def _absent(package: str) -> dict[str, str]:
    """Names that the format's own package has and an alias lacks, and what stands in their place."""
    from antiphon._absent import MODULE

    return MODULE if package in ROOTS else {}


def _missing(package: str, name: str) -> str:
    """What an error says of a name that an alias lacks."""
    from antiphon._absent import missing

    return missing(f"module {package!r}", name, _absent(package))


class AliasPackage(ModuleType):
    """A package under another name. It has no folder, so that nothing of it is ever loaded a second time."""

    __path__: list[str]
    _target: ModuleType

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        try:
            return getattr(self._target, name)
        except AttributeError:
            raise AttributeError(_missing(self.__name__, name)) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._target)})


class _Loader(Loader):
    def __init__(self, target: str) -> None:
        self.target = target

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        target = importlib.import_module(self.target)
        if not hasattr(target, "__path__"):
            # The module itself: there must be one of each class.
            sys.modules[module.__name__] = target
            return
        module.__class__ = AliasPackage
        module.__path__ = []
        module.__doc__ = target.__doc__
        vars(module)["_target"] = target

    def get_code(self, name: str) -> CodeType | None:
        """For `python -m`, which runs a module by its code."""
        spec = importlib.util.find_spec(self.target)
        get_code = getattr(spec and spec.loader, "get_code", None)
        return get_code(self.target) if get_code else None


class AliasFinder(MetaPathFinder):
    """Finds the aliases that nobody else finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = _target(fullname)
        if name is None:
            return None
        parent, _, _ = fullname.rpartition(".")
        if parent:
            # A package that is really installed keeps its submodules, and we do not add those that it lacks.
            if not isinstance(sys.modules.get(parent), AliasPackage):
                return None
        elif self._others_find(fullname, path, target):
            return None
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            own = fullname.rpartition(".")[2]
            if own in _absent(parent):
                # This is also raised for names that `from` imports. It has no `name=`: with one, `from` would take it for a
                # module that need not be there.
                raise ModuleNotFoundError(_missing(parent, own))
            return None
        package = spec.submodule_search_locations is not None
        return ModuleSpec(fullname, _Loader(name), origin=spec.origin, is_package=package)

    def _others_find(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> bool:
        """Whether a finder that was added later has a package of this name."""
        finders = sys.meta_path
        later = finders[finders.index(self) + 1 :] if self in finders else []
        return any(
            find(fullname, path, target) for finder in later if (find := getattr(finder, "find_spec", None))
        )


def install() -> None:
    """Makes Python find the aliases, after everything else; installing twice is installing once."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())
