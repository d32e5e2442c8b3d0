"""`python -m antiphon install`: writes the default plans into the cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["default_folder", "main"]

USAGE = """\
usage: python -m antiphon install

Compiles the default plans and writes them into the folder `default` of the cache: $ANTIPHON_CACHE_DIR, else
$MSCCLPP_CACHE_DIR/antiphon, else $XDG_CACHE_HOME/antiphon, else ~/.cache/antiphon. Plans of these names that are there are replaced.
"""


def default_folder() -> Path:
    """The folder of the default plans."""
    from antiphon._jit import cache_folder

    return cache_folder() / "default"


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit status."""
    if arguments in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if arguments:
        print(f"cannot install: saw {' '.join(arguments)}, allowed no arguments\n\n{USAGE}", file=sys.stderr, end="")
        return 2
    from antiphon.presets import DEFAULTS

    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, default in DEFAULTS.items():
            # Whole or not at all, for whoever reads it meanwhile.
            written = folder / f".{name}.{os.getpid()}.tmp"
            try:
                default.program().write(written, indent=None)
                os.replace(written, folder / f"{name}.json")
            except BaseException:
                written.unlink(missing_ok=True)
                raise
            print(folder / f"{name}.json")
    except OSError as error:
        print(f"cannot install the default plans in {folder}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
