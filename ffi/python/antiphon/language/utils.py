"""What an algorithm says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.language.collectives import Collective
from antiphon.language.internal.types import ReplicationPolicy

__all__ = ["AlgoSpec", "ReplicationPolicy"]


@dataclass(frozen=True)
class AlgoSpec:
    """An algorithm's name, what it computes, over which ranks, and how its program is compiled.

    `CollectiveProgram.from_spec` makes a program of it; the arguments of the same name are explained there.
    """

    name: str
    """The plan's name."""
    collective: Collective
    """What it computes."""
    nranks_per_node: int
    """Ranks of a node; not used by the program."""
    world_size: int
    """Number of ranks."""
    in_place: bool
    """Whether input and output are the same memory; not used by the program, whose collective says it."""
    instances: int
    """How often every thread block is replicated."""
    protocol: str
    """"Simple" or "LL"."""
    instr_fusion: bool = True
    auto_sync: bool = True
    replication_policy: ReplicationPolicy = ReplicationPolicy.interleaved
    reuse_resources: bool = False
    num_threads_per_block: int = 1024
    use_double_scratch_buffer: bool = False
    buffer_alignment: int = 16
    min_message_size: int = 0
    max_message_size: int = 2**64 - 1
    tags: dict[str, int] = field(default_factory=dict)
    """For whoever selects among plans; not used by the program."""
