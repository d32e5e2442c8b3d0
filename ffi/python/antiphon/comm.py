"""The ranks that run plans together, as programs written for the format's own package form them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from antiphon._absent import COMM_GROUP, missing
from antiphon.communicator import Communicator, UniqueId

__all__ = ["CommGroup"]


class CommGroup:
    """A group of processes, a rank each.

    `mpi_comm` is a communicator of mpi4py, `torch_group` a process group of torch.distributed, whose ranks get an id from
    rank 0. `interfaceIpPortTrio` is a place to meet, such as "eth0:10.0.0.1:5000": rank 0 listens there, and all ranks
    prove to know the secret that ANTIPHON_SECRET or ANTIPHON_SECRET_FILE says. Further keyword arguments are those of
    `Communicator.from_environment`, the same on all ranks but for `name`. Raises RuntimeError without any of the three, and with more than
    one.
    """

    def __init__(
        self,
        mpi_comm: Any = None,
        torch_group: Any = None,
        interfaceIpPortTrio: str = "",
        rank: int | None = None,
        size: int | None = None,
        *,
        timeout: float | None = None,
        verification: bool = True,
        process_access: bool = True,
        wire: str | None = None,
        interface: str | None = None,
        reproducible: bool | None = None,
        device: str | None = None,
        tags: Iterable[str] | None = None,
        block_threads: int | None = None,
        kernels: str | None = None,
        multicast: bool = True,
        legacy_ipc: bool | None = None,
        name: str | None = None,
    ) -> None:
        options: dict[str, Any] = {
            "timeout": timeout,
            "verification": verification,
            "process_access": process_access,
            "wire": wire,
            "interface": interface,
            "reproducible": reproducible,
            "device": device,
            "tags": tags,
            "block_threads": block_threads,
            "kernels": kernels,
            "multicast": multicast,
            "legacy_ipc": legacy_ipc,
            "name": name,
        }
        given = [source for source in (mpi_comm, torch_group, interfaceIpPortTrio or None) if source is not None]
        if len(given) != 1:
            raise RuntimeError(
                f"cannot form a group of ranks: saw {len(given) or 'no'} sources of it, allowed one of mpi_comm, torch_group "
                "and interfaceIpPortTrio"
            )
        if mpi_comm is not None:
            self.communicator = _by_mpi(mpi_comm, options)
        elif torch_group is not None:
            self.communicator = _by_torch(torch_group, options)
        else:
            if rank is None or size is None:
                raise RuntimeError(f"cannot meet at {interfaceIpPortTrio}: saw rank {rank} of {size}; give rank and size")
            self.communicator = Communicator.from_place(interfaceIpPortTrio, rank, size, **options)
        self.my_rank: int = self.communicator.rank
        """This process's rank."""
        self.nranks: int = self.communicator.world
        """Number of ranks."""
        self.nranks_per_node: int = self.communicator.ranks_of_node(self.communicator.node(self.my_rank))
        """Ranks of this rank's node."""
        # Ranks are on one node if they map each other's memory.
        self.nranks_per_ipc_domain: int = self.nranks_per_node
        """The same number; so is `ipc_domain_n_ranks`, its former name."""
        self.ipc_domain_n_ranks: int = self.nranks_per_node

    def barrier(self) -> None:
        """Waits for all ranks."""
        self.communicator.barrier()

    if not TYPE_CHECKING:
        # Which find by themselves what it lacks.
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing("CommGroup", name, COMM_GROUP))


def _by_mpi(comm: Any, options: dict[str, Any]) -> Communicator:
    rank, world = comm.Get_rank(), comm.Get_size()
    id = comm.bcast(bytes(UniqueId.create()) if rank == 0 else None, root=0)
    return Communicator.from_id(UniqueId(id), rank, world, **options)


def _by_torch(group: Any, options: dict[str, Any]) -> Communicator:
    import torch.distributed as dist

    rank, world = dist.get_rank(group), dist.get_world_size(group)
    # The first of a group's ranks is its rank 0; broadcast takes that rank's number among all ranks.
    ranks = dist.get_process_group_ranks(group) if hasattr(dist, "get_process_group_ranks") else None
    first = ranks[0] if ranks else dist.distributed_c10d._get_global_rank(group, 0)
    said: list[Any] = [bytes(UniqueId.create()) if rank == 0 else None]
    dist.broadcast_object_list(said, src=first, group=group)
    return Communicator.from_id(UniqueId(said[0]), rank, world, **options)
