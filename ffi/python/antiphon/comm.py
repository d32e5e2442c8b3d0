"""The ranks that run plans together."""

from __future__ import annotations

from typing import Any

from antiphon.plan import unavailable

__all__ = ["CommGroup"]


class CommGroup:
    """A group of processes, a rank each: not available yet."""

    my_rank: int
    """This process's rank."""
    nranks: int
    """Number of ranks."""
    nranks_per_node: int
    """Ranks of a node."""
    communicator: Any
    """What an Executor runs over."""

    def __init__(
        self,
        mpi_comm: Any = None,
        torch_group: Any = None,
        interfaceIpPortTrio: str = "",
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        if mpi_comm is None and torch_group is None and not interfaceIpPortTrio:
            raise RuntimeError(
                "cannot form a group of ranks: saw no source of it, allowed mpi_comm, torch_group and "
                "interfaceIpPortTrio; give one"
            )
        unavailable("form a group of ranks", "the bootstrap of ranks", "run plans by the command `antiphon run`")

    def barrier(self) -> None:
        """Waits for all ranks: not available yet."""
        unavailable("wait for all ranks", "the bootstrap of ranks", "run plans by the command `antiphon run`")
