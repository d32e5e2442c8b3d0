"""The names under which older programs import the package."""

import importlib
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import antiphon

ALIASES = {
    "mscclpp.language.channel": "antiphon.language.channel",
    "mscclpp.language.rank": "antiphon.language.rank",
    "mscclpp.language.general": "antiphon.language.general",
    "mscclpp.language.program": "antiphon.language.program",
    "mscclpp.language.collectives": "antiphon.language.collectives",
    "mscclpp.language.loop": "antiphon.language.loop",
    "mscclpp.language.thread_block_group": "antiphon.language.thread_block_group",
    "mscclpp.language.utils": "antiphon.language.utils",
    "mscclpp.language.internal.globals": "antiphon.language.internal.globals",
    "mscclpp.language.internal.types": "antiphon.language.internal.types",
    "mscclpp.language.buffer": "antiphon.language.buffer",
    "mscclpp.language.types": "antiphon.language.types",
    "mscclpp.comm": "antiphon.comm",
    "mscclpp.plan": "antiphon.plan",
    "mscclpp.dsl": "antiphon.dsl",
    "mscclpp.utils": "antiphon.utils",
    "msccl.topologies": "antiphon.topologies",
    "msccl.language.collectives": "antiphon.language.collectives",
    "msccl.language.types": "antiphon.language.types",
}


@pytest.mark.parametrize(("alias", "target"), ALIASES.items(), ids=ALIASES)
def test_an_alias_is_the_module_itself(alias, target):
    assert importlib.import_module(alias) is importlib.import_module(target)


@pytest.mark.parametrize("package", ["mscclpp.language", "msccl.language", "msccl.language.mscclpp"])
def test_a_package_has_the_names_of_the_language(package):
    import antiphon.language

    names: dict = {}
    exec(f"from {package} import *", names)
    for name in antiphon.language.__all__:
        assert names[name] is getattr(antiphon.language, name), name


def test_names_that_annotations_are_made_of():
    import mscclpp
    import mscclpp.comm as mscclpp_comm
    from mscclpp.dsl import jit, presets

    names = "DataType Executor ExecutionPlan PacketType CommGroup ExecutionPlanRegistry PlanHandle Request".split()
    assert all(isinstance(getattr(mscclpp, name), type) for name in names)
    assert mscclpp_comm.CommGroup is mscclpp.CommGroup
    assert (mscclpp.jit, mscclpp.presets) == (jit, presets)


def test_the_rank_of_the_package_is_module_and_function():
    import mscclpp.language.rank as module
    from mscclpp.language import Rank, rank

    assert module is rank and module.Rank is Rank
    with pytest.raises(RuntimeError, match="No Program in context"):
        rank(0)


def test_what_is_not_there_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="mscclpp.nothing"):
        importlib.import_module("mscclpp.nothing")
    with pytest.raises(ImportError, match="nothing"):
        from mscclpp.language import nothing  # noqa: F401


LACKING = {
    "GpuBuffer": "communicator.allocate",
    "RawGpuBuffer": "communicator.allocate",
    "Algorithm": "PlanHandle",
    "AlgorithmCollection": "set_selector",
    "ReduceOp": "antiphon.Op",
    "env": "docs/environment.md",
    "version": "antiphon.__version__",
    "is_nvls_supported": "switch channels",
    "compile_native": "register_code",
    "ext": "antiphon.plan.register",
}


@pytest.mark.parametrize(("name", "text"), LACKING.items(), ids=LACKING)
def test_what_only_the_formats_own_package_has_says_what_to_use(name, text):
    import antiphon
    import mscclpp

    for package in (antiphon, mscclpp):
        assert not hasattr(package, name)
        with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute '{name}': .*{text}"):
            getattr(package, name)
    with pytest.raises(ImportError, match=text):
        exec(f"from mscclpp import {name}")
    with pytest.raises(ModuleNotFoundError, match=text):
        importlib.import_module(f"mscclpp.{name}")


def python(code, folder):
    """What a Python of its own prints, which runs in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_package_that_is_there_is_not_hidden(tmp_path):
    (tmp_path / "mscclpp").mkdir()
    (tmp_path / "mscclpp" / "__init__.py").write_text("theirs = 1\n")
    code = """
        import antiphon, mscclpp
        assert mscclpp.theirs and not hasattr(mscclpp, "DataType")
        for name in ("mscclpp.language", "mscclpp.comm"):
            try:
                __import__(name)
            except ModuleNotFoundError:
                print(name)
        import msccl.language
    """
    assert python(code, tmp_path) == ["mscclpp.language", "mscclpp.comm"]


def test_nor_one_that_a_later_finder_has(tmp_path):
    code = """
        import sys, antiphon, importlib.util
        from importlib.machinery import ModuleSpec
        class Finder:
            def find_spec(name, path=None, target=None):
                return ModuleSpec(name, None, origin="theirs") if name == "mscclpp" else None
        sys.meta_path.append(Finder)
        print(importlib.util.find_spec("mscclpp").origin)
    """
    assert python(code, tmp_path) == ["theirs"]


def test_importing_the_package_imports_little():
    """Whenever a Python of this environment starts, `antiphon_names.pth` does."""
    code = """
        import sys
        sys.path.insert(0, sys.argv[1])
        before = set(sys.modules)
        import antiphon
        print(*sorted(set(sys.modules) - before))
    """
    # Without what other packages have imported when Python starts.
    command = [sys.executable, "-I", "-S", "-c", textwrap.dedent(code), Path(antiphon.__file__).parents[1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["__future__", "antiphon", "antiphon._aliases"]


def test_python_m_runs_under_an_alias(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import antiphon, runpy, sys; sys.argv = ['x', '--help']; runpy.run_module('mscclpp', run_name='__main__')"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert (done.returncode, "compile" in done.stdout) == (0, True), done.stderr
