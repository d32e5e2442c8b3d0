"""Writes the plans of the Python package's presets into a folder: `cargo xtask defaults --presets` simulates them."""

import sys
from pathlib import Path

from antiphon import presets
from antiphon.language import AlgoSpec, AllGather, AllReduce, ReduceScatter

PER_NODE = 8
RANKS = 2 * PER_NODE


def over_two_nodes(function, collective):
    return function(
        AlgoSpec(
            name=function.__name__,
            collective=collective(RANKS, 1, True),
            nranks_per_node=PER_NODE,
            world_size=RANKS,
            in_place=True,
            instances=1,
            protocol="LL",
            num_threads_per_block=1024,
            use_double_scratch_buffer=True,
        )
    )


FUNCTIONS = {
    "allreduce_nvls": lambda: presets.allreduce_nvls("allreduce_nvls", PER_NODE),
    "allreduce_multi_nodes": lambda: over_two_nodes(presets.allreduce_multi_nodes, AllReduce),
    "allgather_multi_nodes": lambda: over_two_nodes(presets.allgather_multi_nodes, AllGather),
    "reducescatter_multi_nodes": lambda: over_two_nodes(presets.reducescatter_multi_nodes, ReduceScatter),
}

missing = {name for name in presets.__all__ if name.islower()} ^ set(FUNCTIONS)
if missing:
    sys.exit(f"cannot write the presets: {', '.join(sorted(missing))} is here or in presets.__all__, but not in both")
folder = Path(sys.argv[1])
for name, program in FUNCTIONS.items():
    program().write(folder / f"{name}.json", indent=None)
for name, plan in presets.DEFAULTS.items():
    plan.program().write(folder / f"{name}.json", indent=None)
