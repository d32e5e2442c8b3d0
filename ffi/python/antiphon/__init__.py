"""Antiphon: execution plans of collective communication, written as programs.

`antiphon.language` is the language of the programs; `python -m antiphon compile prog.py -o plan.json` compiles one.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__: str = version("antiphon")
except PackageNotFoundError:  # Run from a source tree that was not installed.
    __version__ = "0+unknown"

__all__ = ["__version__"]
