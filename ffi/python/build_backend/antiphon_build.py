"""How the package is built: by maturin, with libantiphon.so beside the extension module.

A build backend of PEP 517, which passes all that has to do with wheels on to maturin's. Before a wheel is made it has cargo build
the library of the C interface, and puts it into the package's folder, from where maturin takes it. cargo builds into
CARGO_TARGET_DIR where that is set.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

PACKAGE = Path(__file__).resolve().parents[1]
SOURCES = PACKAGE.parents[1]
"""The workspace that the library is of."""
SONAME = "libantiphon.so.1"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """The wheel, with the library."""
    put_library()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The wheel that points here, where the library is, too."""
    put_library()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    """None: the package's folder has no sources of the library, which is of the workspace around it."""
    raise SystemExit(
        "cannot build a source distribution of antiphon: the library that it would have to carry is built from a clone of the "
        "repository; build a wheel there: `pip wheel ./ffi/python`, or `python -m build --wheel ffi/python`"
    )


def put_library():
    """Builds the library, and puts it into the package's folder as a new file: whoever runs the old one keeps it."""
    manifest = SOURCES / "ffi" / "Cargo.toml"
    if not manifest.is_file():
        raise SystemExit(
            f"cannot build libantiphon.so: saw no {manifest}; install from a clone of the repository, or from a wheel"
        )
    command = ["cargo", "build", "--release", "--lib", "--manifest-path", str(manifest), "--message-format=json-render-diagnostics"]
    messages = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    folder = PACKAGE / "antiphon" / "lib"
    folder.mkdir(exist_ok=True)
    new = folder / f".{SONAME}.{os.getpid()}"
    shutil.copyfile(built(messages.stdout), new)
    os.replace(new, folder / SONAME)


def built(messages):
    """The shared library that cargo says it built."""
    for line in messages.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message["target"]["name"] == "antiphon_c":
            return next(name for name in message["filenames"] if name.endswith(".so"))
    raise SystemExit("cannot build libantiphon.so: cargo named no such library")
