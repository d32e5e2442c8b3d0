"""Plans to run: what they hold, which of them a call uses, and what runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from antiphon.communicator import Communicator, Op, Stream
    from antiphon.executor import LoadedPlan

__all__ = [
    "Constraint",
    "DataType",
    "ExecutionPlan",
    "ExecutionPlanRegistry",
    "Executor",
    "PacketType",
    "PlanHandle",
    "Request",
    "register",
    "set_selector",
]


class DataType(Enum):
    """Types of elements; the values are their numbers in the format's runtime, from 256 on Antiphon's own."""

    int32 = 0
    uint32 = 1
    float16 = 2
    float32 = 3
    bfloat16 = 4
    float8_e4m3fn = 5
    float8_e4m3fnuz = 6
    float8_e5m2 = 7
    float8_e5m2fnuz = 8
    uint8 = 9
    float8_e4m3b15 = 10
    auto = 255
    # Those that the format's runtime lacks.
    float64 = 256
    int8 = 257
    int64 = 258
    uint64 = 259


class PacketType(Enum):
    """The layout of packets: a flag for 8 bytes of data, or for 4."""

    LL8 = "LL8"
    LL16 = "LL16"


class ExecutionPlan:
    """The plan in a file, as rank `rank` uses it.

    Raises OSError if the file cannot be read, ValueError if it holds no plan or none for this rank.
    """

    def __init__(self, plan_path: str | os.PathLike[str], rank: int = 0) -> None:
        self.path = os.fspath(plan_path)
        """The file."""
        self.rank = rank
        """The rank."""
        with open(self.path, "rb") as file:
            self._bytes = file.read()
        plan = json.loads(self._bytes)
        if not isinstance(plan, dict) or "gpus" not in plan:
            raise ValueError(f"cannot use {self.path} as a plan: it has no ranks; write one by `antiphon compile`")
        ranks = len(plan["gpus"])
        if not 0 <= rank < ranks:
            raise ValueError(f"cannot use {self.path} on rank {rank}: allowed 0 to {ranks - 1}")
        self.name: str = plan["name"]
        """The plan's name."""
        self.collective: str = plan["collective"]
        """What it computes."""
        self.min_message_size: int = plan.get("min_message_size", 0)
        """Smallest message, in bytes."""
        self.max_message_size: int = plan.get("max_message_size", 2**64 - 1)
        """Largest message, in bytes."""
        self.num_ranks = ranks
        """Number of ranks."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExecutionPlan) and (self.path, self.rank) == (other.path, other.rank)

    def __hash__(self) -> int:
        return hash((self.path, self.rank))

    def __repr__(self) -> str:
        return f"ExecutionPlan({self.path!r}, rank={self.rank})"


@dataclass(frozen=True)
class Constraint:
    """Where a plan fits."""

    world_size: int = 0
    """Number of ranks."""
    n_ranks_per_node: int = 0
    """Ranks of a node."""


@dataclass(frozen=True)
class PlanHandle:
    """A compiled plan."""

    id: str
    """A hash of all that the plan says."""
    name: str
    """The plan's name."""
    plan: ExecutionPlan
    """The plan itself."""
    tags: Any = field(default_factory=set)
    """What its author said of it, for selectors."""
    constraint: Constraint = Constraint()
    """Where it fits."""


@dataclass(frozen=True)
class Request:
    """A call that a plan is wanted for."""

    collective: str
    """What to compute."""
    world_size: int
    """Number of ranks."""
    n_ranks_per_node: int
    """Ranks of a node."""
    send_buffer: int
    """Address of the input."""
    recv_buffer: int
    """Address of the output."""
    message_size: int
    """Bytes."""
    dtype: DataType = DataType.auto
    """Type of the elements."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    """What the caller adds."""


Selector = Callable[[dict[str, list[PlanHandle]], Request], "PlanHandle | None"]


class ExecutionPlanRegistry:
    """The plans of this process; every call of the class gives the same registry."""

    _the: ClassVar[ExecutionPlanRegistry | None] = None

    _plans: dict[str, PlanHandle]
    _selector: Selector | None
    _default_selector: Selector | None

    def __new__(cls) -> ExecutionPlanRegistry:
        if cls._the is None:
            cls._the = super().__new__(cls)
            cls._the._plans, cls._the._selector, cls._the._default_selector = {}, None, None
        return cls._the

    def register_plan(self, plan: PlanHandle) -> None:
        """Adds a plan, in place of one with its id; it is then the one that was registered last."""
        if not isinstance(plan, PlanHandle):
            raise TypeError(f"cannot register {plan!r}: allowed a PlanHandle, as jit.compile returns")
        self._plans.pop(plan.id, None)
        self._plans[plan.id] = plan

    def set_selector(self, selector: Selector | None) -> None:
        """Sets the function that is asked first. It takes the plans by collective, and the call, and returns a plan or None."""
        self._selector = selector

    def set_default_selector(self, selector: Selector | None) -> None:
        """Sets the function that chooses where the other one returns None."""
        self._default_selector = selector

    def get(self, id: str) -> PlanHandle | None:
        """The plan with this id; None if there is none."""
        return self._plans.get(id)

    def select(self, **request: Any) -> PlanHandle | None:
        """The plan that the selectors choose for a call, whose arguments are those of `Request`; without an answer of theirs
        the one registered last among those of the collective, the ranks and the size; None if there is none."""
        wanted = Request(**request)
        chosen = self._ask(wanted)
        fitting = (plan for plan in reversed(self._plans.values()) if _fits(plan, wanted))
        return next(fitting, None) if chosen is None else chosen

    def _ask(self, request: Request) -> PlanHandle | None:
        plans: dict[str, list[PlanHandle]] = {}
        for plan in self._plans.values():
            plans.setdefault(plan.plan.collective, []).append(plan)
        for selector in (self._selector, self._default_selector):
            chosen = selector(plans, request) if selector else None
            if chosen is None:
                continue
            if not isinstance(chosen, PlanHandle):
                raise TypeError(f"cannot use {chosen!r:.80}: a selector returns a PlanHandle, or None")
            return chosen
        return None


def _fits(plan: PlanHandle, request: Request) -> bool:
    """Whether what a plan and its author say agrees with a call."""
    own, constraint = plan.plan, plan.constraint
    return (
        own.collective == request.collective
        and own.num_ranks == request.world_size
        and constraint.world_size in (0, request.world_size)
        and constraint.n_ranks_per_node in (0, request.n_ranks_per_node)
        and own.min_message_size <= request.message_size <= own.max_message_size
    )


def register(plan: PlanHandle) -> None:
    """Adds a plan to the registry of this process."""
    ExecutionPlanRegistry().register_plan(plan)


def set_selector(selector: Selector | None) -> None:
    """Sets the function that chooses among the plans of this process."""
    ExecutionPlanRegistry().set_selector(selector)


class Executor:
    """What loads plans and runs them over a communicator."""

    def __init__(self, communicator: Communicator) -> None:
        from antiphon.communicator import Communicator
        from antiphon.executor import Loader

        if not isinstance(communicator, Communicator):
            raise TypeError(
                f"cannot run plans over {communicator!r:.80}: allowed a Communicator, as CommGroup(...).communicator is"
            )
        self.communicator = communicator
        """What it runs over."""
        self._loader = Loader(communicator)

    def load(self, plan: ExecutionPlan | PlanHandle) -> LoadedPlan:
        """The plan, checked, verified and ready to run; each is loaded once.

        Raises PlanRefutedError for one that is shown to go wrong, InvalidPlanError for one that is none or is for another
        number of ranks.
        """
        return self._loader.load(plan.plan if isinstance(plan, PlanHandle) else plan)

    def load_name(self, name: str, in_place: bool = False, root: int = 0) -> LoadedPlan:
        """The plan of a built-in algorithm, such as "allreduce_ring", for all ranks of one node."""
        return self._loader.load_name(name, in_place, root)

    def run(
        self,
        plan: ExecutionPlan | PlanHandle | LoadedPlan,
        send: Any,
        receive: Any = None,
        op: Op | None = None,
        *,
        stream: Stream | None = None,
    ) -> Any:
        """Runs a plan over two buffers, in place over one; `op` is the plan's own reduction unless given. All ranks run
        plans of the same content, with equal sizes and types. Returns the receive buffer."""
        loaded = self.load(plan) if isinstance(plan, (ExecutionPlan, PlanHandle)) else plan
        return self._loader.run(loaded, send, receive, op, stream)

    def execute(
        self,
        rank: int,
        send_ptr: Any,
        recv_ptr: Any,
        send_bytes: int,
        recv_bytes: int,
        dtype: object,
        plan: ExecutionPlan | PlanHandle,
        stream: Any = 0,
        packet_type: PacketType = PacketType.LL16,
    ) -> None:
        """Runs a plan, by addresses or buffers, sizes in bytes, and a type of elements; reductions are the plan's own.

        `rank` is that of the communicator. With 0 for a stream it is complete on return; another one is a `Stream`.
        `packet_type` is taken and has no effect: how packets lie in scratch is the engine's own affair.
        """
        if rank != self.communicator.rank:
            raise ValueError(f"cannot execute as rank {rank}: allowed {self.communicator.rank}, the communicator's")
        PacketType(packet_type)
        self._loader.execute(self.load(plan), (send_ptr, send_bytes), (recv_ptr, recv_bytes), dtype, stream)
