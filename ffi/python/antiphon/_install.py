"""`python -m antiphon install`: writes the default plans into the cache, or has plans serve calls from then on."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

__all__ = ["default_folder", "main"]

DESCRIPTION = """\
Without files, compiles the presets and writes them, and every built-in algorithm of the host, into the folder `default` of the
cache: $ANTIPHON_CACHE_DIR, else $MSCCLPP_CACHE_DIR/antiphon, else $XDG_CACHE_HOME/antiphon, else ~/.cache/antiphon. Plans of
these names that are there are replaced.

With plan files, installs them on this machine: from then on they serve the calls by name of every process that they fit.
"""


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m antiphon install", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", metavar="PLAN.json", help="plans that serve calls from now on")
    parser.add_argument("--name", default="", help="what selectors, tables and messages call it; with one file")
    parser.add_argument("--tag", action="append", default=[], help="a tag; may be given several times")
    parser.add_argument("--ranks-per-node", type=int, default=0, help="serve only where so many ranks are on each node")
    parser.add_argument("--min", type=int, default=0, help="smallest message, in bytes")
    parser.add_argument("--max", type=int, default=0, help="largest message, in bytes")
    parser.add_argument("--root", type=int, help="the root of a plan of broadcast, reduce, gather or scatter")
    parser.add_argument("--remove", action="append", default=[], metavar="NAME", help="remove an installed plan")
    parser.add_argument("--ranks", type=int, help="without files: built-in algorithms of so many ranks; else the cores, at least 2")
    parser.add_argument("--nodes", type=int, help="without files: on so many nodes; else one")
    said = parser.parse_args(given)
    if said.name and len(said.files) != 1:
        parser.error(f"cannot name {len(said.files)} plans: --name is for one file")
    if not said.files and (said.tag or said.ranks_per_node or said.min or said.max or said.root is not None):
        parser.error("cannot install under terms: saw no plan file")
    if (said.files or said.remove) and (said.ranks is not None or said.nodes is not None):
        parser.error("cannot install a plan for other ranks than its own: --ranks and --nodes are for the default plans")
    return said


def default_folder() -> Path:
    """The folder of the default plans."""
    from antiphon._jit import cache_folder

    return cache_folder() / "default"


def _install(said: argparse.Namespace) -> None:
    """Makes plans serve calls, or removes such plans, as the library does it."""
    from antiphon._library import check, library
    from antiphon._registry import terms

    for name in said.remove:
        check(library().antiphon_uninstall(os.fsencode(name)))
        print(f"removed {name}")
    for file in said.files:
        content = Path(file).read_bytes()
        made = terms(
            said.name,
            tags=said.tag,
            min_bytes=said.min,
            max_bytes=said.max,
            ranks_per_node=said.ranks_per_node,
            root=said.root,
        )
        if not said.name:
            made.name = None
        check(library().antiphon_install_bytes(content, len(content), made))
        print(f"installed {file}")


def _write_defaults(folder: Path, ranks: int | None, nodes: int | None) -> None:
    from antiphon._arguments import number
    from antiphon._jit import written
    from antiphon._library import check, library
    from antiphon.errors import InvalidArgumentError
    from antiphon.presets import DEFAULTS

    sizes = (0 if ranks is None else number("ranks", ranks, 32), 1 if nodes is None else number("nodes", nodes, 32))
    if ranks == 0:
        raise InvalidArgumentError("cannot write default plans: saw 0 ranks, allowed 1 or more")
    for name, default in DEFAULTS.items():
        path = folder / f"{name}.json"
        with written(path) as file:
            default.program().write(file, indent=None)
        print(path)
    # This comes last: it needs the library, which a source tree may lack, and the presets do not.
    check(library().antiphon_install_defaults(*sizes))
    print(f"{folder}: the built-in algorithms")


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit status."""
    from antiphon.errors import AntiphonError

    try:
        said = _arguments(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    folder = default_folder()
    try:
        if said.files or said.remove:
            _install(said)
        else:
            _write_defaults(folder, said.ranks, said.nodes)
    except AntiphonError as error:  # First, since some of these are also OSErrors, whose text is written otherwise.
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        where = error.filename if said.files else f"the default plans in {folder}"
        print(f"cannot install {where}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
