"""The names under which programs import the package: `mscclpp` and `msccl`, as it had been called.

No package of these names is installed. A finder that Python asks last makes them, so they never hide a package that is really
there, whatever finder finds it. A file `antiphon_names.pth` installs the finder whenever Python starts, so this imports next to nothing:
what makes the modules is `_alias_modules`, which is imported with the first of them.
"""

from __future__ import annotations

import sys

# In the place of that of typing, whose import takes several times as long as all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

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


class AliasFinder:
    """Finds the aliases that nobody else finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        name = _target(fullname)
        if name is None or "." not in fullname and self._others_find(fullname, path, target):
            return None
        from antiphon._alias_modules import spec

        return spec(fullname, name)

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
