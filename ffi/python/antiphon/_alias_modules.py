"""The modules that aliases become, and what makes them. See `_aliases`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from antiphon._absent import MODULE, missing
from antiphon._aliases import ROOTS

__all__ = ["spec"]


def _absent(package: str) -> dict[str, str]:
    """Names that the format's own package has and an alias lacks, and what stands in their place."""
    return MODULE if package in ROOTS else {}


def _missing(package: str, name: str) -> str:
    """What an error says of a name that an alias lacks."""
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


def spec(fullname: str, name: str) -> ModuleSpec | None:
    """How an alias of a module is made, if it is to be there."""
    parent, _, own = fullname.rpartition(".")
    # A package that is really installed keeps its submodules, and we do not add those that it lacks.
    if parent and not isinstance(sys.modules.get(parent), AliasPackage):
        return None
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        if own in _absent(parent):
            # This is also raised for names that `from` imports. It has no `name=`: with one, `from` would take it for a
            # module that need not be there.
            raise ModuleNotFoundError(_missing(parent, own))
        return None
    package = found.submodule_search_locations is not None
    return ModuleSpec(fullname, _Loader(name), origin=found.origin, is_package=package)
