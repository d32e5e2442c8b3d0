"""Names of the format's own package that this one does not have, and what stands in their place."""

from __future__ import annotations

__all__ = ["COMM_GROUP", "MODULE", "missing"]

_CHANNELS = "plans say which channels there are, and ranks connect when one is loaded; use Executor(group.communicator)"

COMM_GROUP = {
    "bootstrap": "a group has rank, world, node(rank) and barrier() at `communicator`",
    "make_connection": _CHANNELS,
    "make_memory_channels": _CHANNELS,
    "make_memory_channels_with_scratch": _CHANNELS,
    "make_port_channels": _CHANNELS,
    "make_port_channels_with_scratch": _CHANNELS,
    "make_semaphores": _CHANNELS,
    "my_ib_device": "ports take the cards near them, or those that ANTIPHON_HCA names",
    "recv": "transfers between two ranks come in order and have no tags; use communicator.receive(array, peer)",
    "register_local_memory": _CHANNELS,
    "register_memory_with_proxy": _CHANNELS,
    "register_semaphore_with_proxy": _CHANNELS,
    "register_tensor_with_connections": _CHANNELS,
    "send": "transfers between two ranks come in order and have no tags; use communicator.send(array, peer)",
}
"""The names that `CommGroup` lacks."""

MODULE = {
    "Algorithm": "`compile` returns a PlanHandle, which Executor(communicator).execute(…) runs",
    "AlgorithmBuilder": "antiphon.register_code registers a function that serves calls",
    "AlgorithmCollection": "antiphon.plan.register(handle) keeps plans, and set_selector chooses among them",
    "AlgorithmCollectionBuilder": "antiphon.plan.register(handle) keeps plans, and set_selector chooses among them",
    "GpuBuffer": "communicator.allocate(bytes) gives memory that peers map; asarray(memory).view(dtype) is an array of it",
    "RawGpuBuffer": "communicator.allocate(bytes) gives memory that peers map, whose address is `address`",
    "ReduceOp": "use antiphon.Op: sum, prod, min, max, avg",
    "compile_native": "antiphon.register_code registers a function that serves calls; C has antiphon_registry_register_code for compiled ones",
    "env": "the variables are read where they are needed; docs/environment.md lists them",
    "ext": "antiphon.plan.register(handle) keeps plans, set_selector chooses among them, and antiphon.default_algos has algorithms",
    "is_nvls_supported": "plans with switch channels run on every device; docs/gpu.md says where they use multicast",
    "version": "use antiphon.__version__",
}
"""The names that the package lacks."""


def missing(owner: str, name: str, table: dict[str, str]) -> str:
    """What an error says of a name that `owner` lacks."""
    counterpart = table.get(name)
    return f"{owner} has no attribute {name!r}" + (f": {counterpart}" if counterpart else "")
