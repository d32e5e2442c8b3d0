"""The oldest stage of the language, which speaks of chunks.

`chunk(rank, buffer, index)` is a reference to chunks, whose methods move and add them; `rank(r).barrier(blocks)` makes
blocks meet; `Json()` prints the plan and `Check()` says whether it does what the collective promises.
"""

from __future__ import annotations

from typing import Any, Protocol

from antiphon._native import ChunkProgram, Ref, current_chunk_program
from antiphon.language._defaults import defaults
from antiphon.language.collectives import Collective
from antiphon.language.internal.types import BufferType, ReplicationPolicy

__all__ = ["Check", "Json", "MSCCLPPProgram", "RankRef", "Ref", "chunk", "rank"]


class _Topology(Protocol):
    def num_nodes(self) -> int: ...
    def link(self, src: int, dst: int, /) -> int: ...


class MSCCLPPProgram:
    """A program of chunks. `with` makes it the current one, to which `chunk` and the other functions belong.

    Two forms: `MSCCLPPProgram(name, collective, num_ranks, instances, ...)`, and, with the ranks and links of a topology,
    `MSCCLPPProgram(name, topo, collective, instances, ...)`. Of an AllReduce the chunk factor is the number of all chunks
    here. Without a name (None) the plan has the collective's. Instances are `duplicated` unless told; scratch is used twice
    in turn with the protocol "LL".

    Raises AssertionError for other protocols than "Simple" and "LL", ValueError for what cannot be, TypeError for other
    arguments; entering it raises RuntimeError inside of another one.
    """

    def __init__(
        self,
        name: str | None,
        *given: Any,
        topo: _Topology | None = None,
        collective: Collective | None = None,
        num_ranks: int | None = None,
        instances: int | None = None,
        protocol: str | None = None,
        instr_fusion: bool | None = None,
        replication_policy: ReplicationPolicy | None = None,
        num_threads_per_block: int | float | None = None,
        use_double_scratch_buffer: bool | None = None,
        min_message_size: int | float | None = None,
        max_message_size: int | float | None = None,
        compatible: bool = False,
    ) -> None:
        named: dict[str, Any] = {
            "topo": topo,
            "collective": collective,
            "num_ranks": num_ranks,
            "instances": instances,
            "protocol": protocol,
            "instr_fusion": instr_fusion,
            "replication_policy": replication_policy,
            "num_threads_per_block": num_threads_per_block,
            "use_double_scratch_buffer": use_double_scratch_buffer,
            "min_message_size": min_message_size,
            "max_message_size": max_message_size,
        }
        values = {key: value for key, value in named.items() if value is not None}
        with_topology = topo is not None or (bool(given) and not isinstance(given[0], Collective))
        first = ["topo", "collective"] if with_topology else ["collective", "num_ranks"]
        order = [*first, *list(named)[3:]]
        if len(given) > len(order):
            raise TypeError(f"MSCCLPPProgram() takes at most {len(order) + 1} arguments, saw {len(given) + 1}")
        for key, value in zip(order, given):
            if key in values:
                raise TypeError(f"MSCCLPPProgram() got the argument {key!r} twice")
            values[key] = value
        for key, value in defaults().items():
            values.setdefault(key, value)
        self.collective = _collective(values.pop("collective", None))
        self.topo = values.pop("topo", None)
        links = None
        if self.topo is not None:
            ranks = self.topo.num_nodes()
            links = [(a, b) for a in range(ranks) for b in range(ranks) if a != b and self.topo.link(a, b)]
            if values.setdefault("num_ranks", ranks) != ranks:
                raise ValueError(f"cannot make a program of {values['num_ranks']} ranks: its topology has {ranks}")
        if "num_ranks" not in values:
            raise TypeError("MSCCLPPProgram() is missing the argument 'num_ranks'")
        policy = values.pop("replication_policy", ReplicationPolicy.duplicated)
        if not isinstance(policy, ReplicationPolicy):
            raise TypeError(f"cannot replicate by {policy!r}: allowed members of ReplicationPolicy")
        self.name = name = self.collective.name if name is None else name
        self.num_ranks = values.pop("num_ranks")
        self.instances = values.setdefault("instances", 1)
        per_node = getattr(self.collective, "num_ranks_per_node", -1)
        self._program = ChunkProgram(
            name,
            self.collective.name,
            self.collective.num_ranks,
            self.collective.chunk_factor,
            self.collective.inplace,
            program_ranks=self.num_ranks,
            root=getattr(self.collective, "root", 0),
            ranks_per_node=None if per_node == -1 else per_node,
            replication_policy=policy.value,
            links=links,
            compatible=compatible,
            **values,
        )

    def __enter__(self) -> MSCCLPPProgram:
        self._program.enter()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._program.leave()

    def to_json(self, indent: int | str | None = 2, **json_kwargs: Any) -> str:
        """The plan as text of JSON: what `json.dumps` makes of it with this `indent` and these options.

        Raises RuntimeError for signals without waits or the reverse, and for whatever else makes no plan.
        """
        return self._program.to_json(indent, **json_kwargs)

    def check(self) -> bool:
        """Whether the program does what its collective promises. Prints what is wrong, a line each."""
        found = self._program.check()
        for line in found:
            print(line)
        return not found

    def __repr__(self) -> str:
        return f"MSCCLPPProgram({self.name!r}, {self.collective!r}, num_ranks={self.num_ranks})"


def _collective(given: object) -> Collective:
    if isinstance(given, Collective):
        return given
    raise TypeError(f"cannot make an MSCCLPPProgram of {given!r}: allowed a Collective, as AllReduce(2, 2, True)")


class RankRef:
    """A rank; `rank()` makes it."""

    def __init__(self, rank: int, program: ChunkProgram) -> None:
        self.rank = rank
        self._program = program

    def barrier(self, tb_list: list[int]) -> None:
        """Makes the blocks of `tb_list` meet: each goes on when all have come here."""
        self._program.barrier(self.rank, tb_list)

    def __repr__(self) -> str:
        return f"rank({self.rank})"


def chunk(rank: int, buffer: BufferType | str, index: int, size: int = 1) -> Ref | None:
    """A reference to `size` chunks of a rank's buffer from `index` on; None if the first one holds nothing yet.

    Chunks of scratch exist as soon as they are named. Any str is the name of a scratch buffer of its own. Raises
    RuntimeError outside of an MSCCLPPProgram and for chunks and ranks that do not exist.
    """
    return current_chunk_program().chunk(rank, buffer, index, size)


def rank(rank: int) -> RankRef:
    """A rank of the current MSCCLPPProgram. Raises RuntimeError outside of one."""
    return RankRef(rank, current_chunk_program())


def Json() -> None:
    """Prints the plan of the current MSCCLPPProgram; where the command `compile` writes it, a line that says so."""
    print(current_chunk_program().shown())


def Check() -> bool:
    """Whether the current MSCCLPPProgram does what its collective promises. Prints what is wrong, a line each."""
    found = current_chunk_program().check()
    for line in found:
        print(line)
    return not found
