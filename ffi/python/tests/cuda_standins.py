"""Libraries in the place of those of CUDA that a PyTorch built for it wants when it is loaded. They say that there is no device.

    python cuda_standins.py FOLDER

writes them to a folder, for the PyTorch of this Python: so its CPU half can be used without CUDA, and without the gigabytes of it.
"""

import re
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

OF_CUDA = re.compile(r"lib(cu|nv|nccl)")
"""How the names of the libraries begin."""
NO_DEVICE = 0
"""What every function returns: of most of them, that there is none."""


def _read(option: str, library: Path) -> str:
    command = ["readelf", "--wide", option, str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _wanted(libraries: list[Path]) -> dict[str, dict[str, set[str]]]:
    """The names that libraries want of CUDA's, by library and version; those without a version of any."""
    wanted: dict[str, dict[str, set[str]]] = {}
    loose, own = set(), set()
    for library in libraries:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", _read("--dynamic", library)):
            if OF_CUDA.match(name):
                wanted.setdefault(name, defaultdict(set))
    for library in libraries:
        versions, file = {}, ""
        for line in _read("--version-info", library).splitlines():
            if found := re.search(r" File: (\S+)", line):
                file = found[1]
            elif found := re.search(r" Name: (\S+) .*Version: (\d+)", line):
                versions[found[2]] = (file, found[1])
        for columns in map(str.split, _read("--dyn-syms", library).splitlines()):
            if len(columns) < 8 or not columns[0].endswith(":"):
                continue
            name, _, version = columns[7].partition("@")
            if columns[6] != "UND":
                own.add(name)
            elif version and (place := versions[columns[8].strip("()")])[0] in wanted:
                wanted[place[0]][place[1]].add(name)
            elif not version and columns[4] != "WEAK":
                loose.add(name)
    next(iter(wanted.values()))[""] |= {name for name in loose - own if re.match(r"_*(cu|nv|nccl)", name)}
    return wanted


def main() -> None:
    """Writes them."""
    folder, torch = Path(sys.argv[1]), find_spec("torch")
    assert torch and torch.origin, "this Python has no PyTorch"
    folder.mkdir(parents=True, exist_ok=True)
    for library, versions in _wanted(sorted(Path(torch.origin).parent.glob("lib/*.so*"))).items():
        names = sorted(name for names in versions.values() for name in names)
        source, script = folder / f"{library}.c", folder / f"{library}.map"
        source.write_text("".join(f"long {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
        named = {version: names for version, names in versions.items() if version}
        script.write_text("".join(f'{version} {{ global: {"; ".join(sorted(names))}; }};\n' for version, names in named.items()))
        command = ["gcc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", str(folder / library), str(source)]
        subprocess.run(command + ([f"-Wl,--version-script,{script}"] if named else []), check=True)


if __name__ == "__main__":
    main()
