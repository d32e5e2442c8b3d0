"""What the build backend refuses, and why."""

import os
import re
import subprocess
import sys

import pytest
from test_pages import REPOSITORY

BACKEND = REPOSITORY / "ffi" / "python" / "build_backend"


def test_a_source_distribution_is_refused_with_what_to_build_instead(tmp_path):
    pytest.importorskip("maturin", reason="SKIP: maturin is not there")
    code = "import sys, antiphon_build; antiphon_build.build_sdist(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        env={**os.environ, "PYTHONPATH": str(BACKEND)}, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 1 and "from a clone" in done.stderr and not list(tmp_path.iterdir()), done.stderr
    commands = re.findall(r"`(.+?)`", done.stderr)
    page = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
    assert len(commands) == 2 and all(f"$ {command}\n" in page for command in commands), commands
