"""What programs compute, and in how many chunks their buffers are divided."""

from __future__ import annotations

from typing import ClassVar

from antiphon._native import collective_chunks
from antiphon.language.internal.types import BufferType
from antiphon.language.rank import BaseBuffer

# Whoever writes a collective names buffers, so they are here too.
__all__ = [
    "AllGather",
    "AllGatherV",
    "AllReduce",
    "AllToAll",
    "AllToAllV",
    "BaseBuffer",
    "Broadcast",
    "BufferType",
    "Collective",
    "Gather",
    "Reduce",
    "ReduceScatter",
    "Scatter",
    "SendRecv",
    "TestCollective",
]

Buffers = list[dict[BufferType, BaseBuffer]]


class Collective:
    """A collective of the author's own: a subclass says by `init_buffers` how many chunks the buffers have."""

    name: str = "custom"
    """What plans call it."""

    runtime_sizes: bool = False
    """Whether chunks are blocks whose places and lengths come with each call."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool) -> None:
        self.num_ranks = num_ranks
        self.chunk_factor = chunk_factor
        self.inplace = inplace

    def init_buffers(self) -> Buffers:
        """Every rank's input and output buffer, by rank. Without a buffer, the plan puts no constraint on it."""
        raise NotImplementedError(
            f"cannot count the chunks of {type(self).__name__}: it has no init_buffers(); define it to return a dict of "
            "BufferType.input and BufferType.output for every rank"
        )

    def post_condition(self, rank: int, chunk: int) -> list[tuple[int, int]] | None:
        """What chunk `chunk` of the output of rank `rank` must hold after a launch: the reduction of these input chunks,
        each a pair of the rank whose input it is and its number there, or None for whatever is there.

        `CollectiveProgram.check()` asks it for collectives of the author's own; without it there is nothing to check.
        """
        raise NotImplementedError(f"{type(self).__name__} has no post_condition()")

    def check(self, prog: object = None) -> None:
        """A hook for subclasses, of a program; does nothing."""

    def __repr__(self) -> str:
        factor, inplace = self.chunk_factor, self.inplace
        return f"{type(self).__name__}(num_ranks={self.num_ranks}, chunk_factor={factor}, inplace={inplace})"


def _buffers(num_ranks: int, input_size: int, output_size: int) -> Buffers:
    return [
        {
            BufferType.input: BaseBuffer(rank, BufferType.input, 0, input_size),
            BufferType.output: BaseBuffer(rank, BufferType.output, 0, output_size),
        }
        for rank in range(num_ranks)
    ]


class TestCollective(Collective):
    """A collective without a meaning, for buffers of any number of chunks."""

    name = "test"
    __test__: ClassVar[bool] = False  # Not a test of pytest's.

    def __init__(self, num_ranks: int, input_size: int, output_size: int) -> None:
        super().__init__(num_ranks, 1, False)
        self.input_size = input_size
        self.output_size = output_size

    def init_buffers(self) -> Buffers:
        return _buffers(self.num_ranks, self.input_size, self.output_size)


class _Known(Collective):
    """A collective whose numbers of chunks follow from what it is, also where its author gives it another name."""

    def init_buffers(self) -> Buffers:
        sizes = collective_chunks(self._kind().name, self.num_ranks, self.chunk_factor)
        return _buffers(self.num_ranks, *sizes)

    def _kind(self) -> type[_Known]:
        """The class of this module that it is of."""
        return next(kind for kind in type(self).__mro__ if kind.__module__ == __name__ and issubclass(kind, _Known))

    def _rule(self) -> str:
        """The name of the collective whose rules hold: its own, where its author says what its buffers are, or then hold."""
        own, kind = type(self), self._kind()
        same = own.init_buffers is kind.init_buffers and own.post_condition is kind.post_condition
        return kind.name if same else self.name


class _Rooted(_Known):
    """A collective with a root, which is the program's business: plans do not name it."""

    def __init__(self, num_ranks: int, chunk_factor: int, inplace: bool, root: int = 0) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.root = root


class AllGather(_Known):
    """Every rank ends with the concatenation of all inputs: chunk_factor chunks in, num_ranks times as many out."""

    name = "allgather"


class AllReduce(_Known):
    """Every rank ends with the reduction of all inputs: num_ranks * chunk_factor chunks in and out.

    In an MSCCLPPProgram they are chunk_factor chunks, and `num_ranks_per_node` says which ranks group operations reach;
    `num_chunk_groups` was for the arithmetic of that stage's own executor and changes nothing.
    """

    name = "allreduce"

    def __init__(
        self,
        num_ranks: int,
        chunk_factor: int,
        inplace: bool,
        num_ranks_per_node: int = -1,
        num_chunk_groups: int | None = None,
    ) -> None:
        super().__init__(num_ranks, chunk_factor, inplace)
        self.num_ranks_per_node = num_ranks_per_node
        self.num_chunk_groups = num_chunk_groups

    def init_buffers(self) -> Buffers:
        if self.num_ranks_per_node != -1 or self.num_chunk_groups is not None:
            raise ValueError(
                "cannot use num_ranks_per_node and num_chunk_groups of AllReduce in a CollectiveProgram: they are of "
                "MSCCLPPProgram, where chunk_factor counts other chunks; give AllReduce(num_ranks, chunk_factor, inplace)"
            )
        return super().init_buffers()


class ReduceScatter(_Known):
    """Rank r ends with block r of the reduction: num_ranks * chunk_factor chunks in, chunk_factor out."""

    name = "reducescatter"


class AllToAll(_Known):
    """Block r of rank s's input becomes block s of rank r's output: num_ranks * chunk_factor chunks in and out."""

    name = "alltoall"


class SendRecv(_Known):
    """Point-to-point exchange: chunk_factor chunks in and out."""

    name = "sendrecv"


class Broadcast(_Rooted):
    """Every rank ends with the root's input: chunk_factor chunks in and out."""

    name = "broadcast"


class Reduce(_Rooted):
    """The root ends with the reduction of all inputs: chunk_factor chunks in and out."""

    name = "reduce"


class Gather(_Rooted):
    """The root ends with the concatenation of all inputs: chunk_factor chunks in, num_ranks times as many out."""

    name = "gather"


class Scatter(_Rooted):
    """Rank r ends with block r of the root's input: num_ranks * chunk_factor chunks in, chunk_factor out."""

    name = "scatter"


class AllToAllV(_Known):
    """As AllToAll, but every block has a size of its own, which comes with each call: num_ranks blocks in and out.

    `put`, `get` and `copy` move blocks; scratch, packets, reductions, pipelines and instances need chunks of equal size.
    """

    name = "alltoallv"
    runtime_sizes = True

    def __init__(self, num_ranks: int) -> None:
        super().__init__(num_ranks, 1, False)


class AllGatherV(_Known):
    """As AllGather, but every rank's part has a size of its own, which comes with each call: one block in, num_ranks out.

    `put`, `get` and `copy` move blocks; scratch, packets, reductions, pipelines and instances need chunks of equal size.
    """

    name = "allgatherv"
    runtime_sizes = True

    def __init__(self, num_ranks: int, inplace: bool = False) -> None:
        super().__init__(num_ranks, 1, inplace)
