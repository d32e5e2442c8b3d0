"""What the builds of the package refuse, and why."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from test_pages import REPOSITORY

PACKAGE = REPOSITORY / "ffi" / "python"


def commands(text):
    """What a message says to type, each of which `docs/python.md` says, too."""
    found = re.findall(r"`(.+?)`", text)
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    assert all(f"$ {command}\n" in page for command in found), found
    return found


def test_a_source_distribution_is_refused_with_what_to_build_instead(tmp_path):
    pytest.importorskip("maturin", reason="SKIP: maturin is not there")
    code = "import sys, antiphon_build; antiphon_build.build_sdist(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        env={**os.environ, "PYTHONPATH": str(PACKAGE / "build_backend")}, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 1 and "from a clone" in done.stderr and not list(tmp_path.iterdir()), done.stderr
    assert len(commands(done.stderr)) == 2


def test_an_editable_package_is_found_by_all_its_names(tmp_path):
    """Its folder is named by a file that maturin calls after the package, beside those that every wheel brings."""
    shutil.copytree(PACKAGE / "antiphon.data" / "purelib", tmp_path, dirs_exist_ok=True)
    (tmp_path / "antiphon.pth").write_text(f"{PACKAGE}\n")
    code = "import site, sys; from importlib.util import find_spec; site.addsitedir(sys.argv[1]); print(*map(bool, map(find_spec, sys.argv[2:])))"
    command = [sys.executable, "-I", "-S", "-c", code, tmp_path, "antiphon", "mscclpp", "msccl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True True True\n", done.stderr


def test_a_wheel_without_the_library_is_refused(tmp_path):
    """As `maturin build` by itself would make one."""
    if shutil.which("rustc") is None:
        pytest.skip("SKIP: rustc is not there")
    script = tmp_path / "script"
    subprocess.run(["rustc", "--edition=2024", PACKAGE / "build.rs", "-o", script], check=True, timeout=60)

    def errors(**environment):
        said = subprocess.run([script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return [line for line in said.stdout.splitlines() if line.startswith("cargo::error=")]

    assert errors() == []
    [error] = errors(PYO3_ENVIRONMENT_SIGNATURE="cpython-3.11-64bit")
    assert len(commands(error)) == 2
    library = tmp_path / "antiphon" / "lib" / "libantiphon.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    assert errors(PYO3_ENVIRONMENT_SIGNATURE="cpython-3.11-64bit") == []
