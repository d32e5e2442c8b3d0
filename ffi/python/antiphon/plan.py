"""Plans to run: their contents, the registry from which calls choose them, and the executor that runs them."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from antiphon import _abi, _registry
from antiphon._arguments import encoded, number, put_tags, spelled
from antiphon._buffers import NAMES
from antiphon.errors import InvalidArgumentError, UnsupportedError

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
    "unregister",
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
    # The types that the format's runtime lacks.
    float64 = 256
    int8 = 257
    int64 = 258
    uint64 = 259

    def _number(self) -> int:
        """Its number in the C interface."""
        if self.name not in NAMES:
            raise UnsupportedError(f"cannot use elements of type {self.name}: allowed {', '.join(NAMES)}")
        return int(NAMES[self.name])

    @classmethod
    def _of_number(cls, number: int) -> DataType:
        """The type of a number of the C interface."""
        return _OF_NUMBERS[number]


_OF_NUMBERS = {int(number): DataType[name] for name, number in NAMES.items()}


class PacketType(Enum):
    """The layout of packets: a flag for 8 bytes of data, or for 4."""

    LL8 = "LL8"
    LL16 = "LL16"


class ExecutionPlan:
    """The plan in a file, as rank `rank` uses it.

    Raises OSError if the file cannot be read, ValueError if it holds no plan or none for this rank.
    """

    @spelled(planPath="plan_path")
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
        self.in_place: bool = plan.get("inplace", False)
        """Whether input and output are the same memory."""
        self.min_message_size: int = int(plan.get("min_message_size", 0))
        """Smallest message, in bytes."""
        self.max_message_size: int = int(plan.get("max_message_size", 2**64 - 1))
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
    """The calls that a plan or code is for; what is left open limits nothing."""

    world_size: int = 0
    """Number of ranks."""
    n_ranks_per_node: int = 0
    """Ranks of a node."""
    dtypes: tuple[DataType, ...] = ()
    """Types of elements."""
    ops: tuple[Op, ...] = ()
    """Reductions. Those that are listed take the place of what the plan says; if none is listed, a plan that names none serves
    all, and one that names one serves only that one."""
    root: int | None = None
    """The root. A plan of broadcast, reduce, gather or scatter is written for one, and serves no call unless this says
    which."""


@dataclass(frozen=True)
class PlanHandle:
    """A compiled plan."""

    id: str
    """A hash of all that the plan says."""
    name: str
    """The plan's name."""
    plan: ExecutionPlan
    """The plan itself."""
    tags: Any = field(default_factory=set, hash=False)
    """Tags that its author gave it, for selectors."""
    constraint: Constraint = Constraint()
    """The calls that it is for."""


@dataclass(frozen=True)
class Request:
    """A call that a plan is wanted for."""

    collective: str
    """What to compute."""
    world_size: int
    """Number of ranks."""
    n_ranks_per_node: int
    """Ranks of a node; 1 unless each node has consecutive ranks, equally many on each."""
    send_buffer: int
    """Address of the input; 0 if no call is being made."""
    recv_buffer: int
    """Address of the output; 0 if no call is being made."""
    message_size: int
    """Bytes of the larger buffer, such as the input of a reducescatter; but for an allgather, bytes of the input, a rank's
    part, as in programs written for the format's own package. It is 0 for an alltoallv or allgatherv, since each rank knows
    only its own blocks."""
    dtype: DataType = DataType.auto
    """Type of the elements."""
    hints: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What the caller adds. A call by name adds `op`, an `Op` or None, `root`, `in_place`, and `tags`, which are those that the
    communicator asks for."""

    def _nodes(self) -> int:
        """How many nodes the ranks are on."""
        per_node = min(self.n_ranks_per_node, self.world_size)
        if per_node < 1:
            raise InvalidArgumentError(
                f"cannot select a plan for {self.world_size} ranks with {self.n_ranks_per_node} on a node: allowed 1 or more"
            )
        # If nodes have different numbers of ranks, each rank counts as a node.
        return self.world_size if self.world_size % per_node else self.world_size // per_node

    def _larger(self) -> int:
        """Bytes of the larger buffer, by which plans say which messages they are for."""
        return self.message_size * (self.world_size if self.collective == "allgather" else 1)

    def _in_place(self) -> bool | None:
        """Whether input and output are the same memory, by the collective's convention; None if that is not known, or makes no
        difference."""
        if self.collective in ("broadcast", "reduce"):
            return None
        if "in_place" in self.hints:
            return bool(self.hints["in_place"])
        if not self.send_buffer or not self.recv_buffer:
            return None
        # A rank's block of the larger buffer.
        own, whole = self.send_buffer, self.recv_buffer
        if self.collective in ("reducescatter", "scatter"):
            own, whole = whole, own
        if self.collective in ("allgather", "reducescatter", "gather", "scatter"):
            return whole <= own < whole + max(self._larger(), 1)
        return own == whole


Selector = Callable[[dict[str, list[PlanHandle]], Request], "PlanHandle | None"]


class ExecutionPlanRegistry:
    """The plans of this process; every call of the class gives the same registry.

    What is registered serves all calls by name of the process that it fits: those of `antiphon.all_reduce(x)` and its like, and
    those by NCCL's interface. Register on all ranks, in the same order, between calls.
    """

    _the: ClassVar[ExecutionPlanRegistry | None] = None
    _lock: ClassVar[threading.RLock] = threading.RLock()

    _plans: dict[str, PlanHandle]
    _selector: Selector | None
    _default_selector: Selector | None
    _wanted: threading.local
    """The request for which this thread selects at the moment, if any."""

    def __new__(cls) -> ExecutionPlanRegistry:
        with cls._lock:
            if cls._the is None:
                made = super().__new__(cls)
                made._plans, made._selector, made._default_selector = {}, None, None
                made._wanted = threading.local()
                cls._the = made
            return cls._the

    def register_plan(self, plan: PlanHandle) -> None:
        """Adds a plan, in place of one with its id; it is then the one that was registered last, which is considered first.
        Each communicator verifies it when it first serves a call there.

        Raises InvalidPlanError for an invalid plan, InvalidArgumentError for a constraint that contradicts the plan, and for a
        plan of sendrecv, whose calls are served by what is built in.
        """
        if not isinstance(plan, PlanHandle):
            raise TypeError(f"cannot register {plan!r}: allowed a PlanHandle, as jit.compile returns")
        said = _terms(plan)
        with self._lock:
            before = self._plans.pop(plan.id, None)
            if before is not None:
                _registry.unregister(_name(before))
            try:
                _registry.put_plan(plan.plan._bytes, said)
            except BaseException:
                if before is not None:
                    _registry.put_plan(before.plan._bytes, _terms(before))
                    self._plans[before.id] = before
                raise
            self._plans[plan.id] = plan

    def unregister_plan(self, id: str) -> None:
        """Takes a plan out. Calls that are under way go on. Raises KeyError if there is none with this id."""
        with self._lock:
            _registry.unregister(_name(self._plans[id]))
            del self._plans[id]

    def set_selector(self, selector: Selector | None) -> None:
        """Sets the function that is asked first about every call by name of this process; None for none.

        It takes the registered plans by collective, and the call, and returns one of them, or None, which leaves the choice to
        `set_default_selector`'s, and then to the rules. It is called on the thread that makes the call, possibly on several at
        a time, and must not make calls itself. It must choose alike on all ranks. If it raises, or chooses a plan that does not
        fit, the call fails.
        """
        with self._lock:
            self._selector = selector
            self._tell()

    def set_default_selector(self, selector: Selector | None) -> None:
        """Sets the function that chooses where the other one returns None; None for none."""
        with self._lock:
            self._default_selector = selector
            self._tell()

    def get(self, id: str) -> PlanHandle | None:
        """The plan with this id; None if there is none."""
        return self._plans.get(id)

    def select(self, **request: Any) -> PlanHandle | None:
        """The registered plan that would serve a call, given by the arguments of `Request`; None if something else would serve
        it, or nothing. No call is made, but a selector is asked. The library decides by its rules, but considers neither a
        tuning table nor installed plans; `Communicator.explain` considers both.

        Unless the request says otherwise, elements are float32 and the call is out of place, as for `Communicator.explain`; its
        hints may give `op`, `root`, `in_place`, `tags` and `reproducible`. Raises InvalidArgumentError if a selector fails, or
        its answer does not fit, and if the nodes do not have equally many ranks.
        """
        wanted = Request(**request)
        question = _question(wanted)
        self._wanted.request = wanted
        try:
            chosen = _registry.choice(question)["chosen"]
        except UnsupportedError:
            return None
        finally:
            self._wanted.request = None
        with self._lock:
            named = {_name(plan): plan for plan in self._plans.values()}
        return named.get(chosen["name"]) if chosen["kind"] == "registered plan" else None

    def _ask(self, request: Request) -> PlanHandle | None:
        with self._lock:
            known, selectors = list(self._plans.values()), (self._selector, self._default_selector)
        plans: dict[str, list[PlanHandle]] = {}
        for plan in known:
            plans.setdefault(plan.plan.collective, []).append(plan)
        for selector in selectors:
            chosen = selector(plans, request) if selector else None
            if chosen is None:
                continue
            if not isinstance(chosen, PlanHandle):
                raise TypeError(f"cannot use {chosen!r:.80}: a selector returns a PlanHandle, or None")
            return chosen
        return None

    def _tell(self) -> None:
        """Makes the library ask this registry if it has a selector."""
        asks = self._selector is not None or self._default_selector is not None
        _registry.set_selector(self._choose if asks else None)

    def _choose(self, question: _abi.Question) -> str | None:
        """The selectors' answer to the library."""
        # A request of `select` says more than the library passes on.
        chosen = self._ask(getattr(self._wanted, "request", None) or _request(question))
        return None if chosen is None else _name(chosen)


def _name(plan: PlanHandle) -> str:
    """The library's name of a plan. It has the plan's own name too, since ids alone mean nothing to people."""
    return f"{plan.name}#{plan.id}"


def _terms(plan: PlanHandle) -> _abi.Terms:
    constraint = plan.constraint
    return _registry.terms(
        _name(plan),
        tags=sorted(map(str, plan.tags)),
        dtypes=[dtype._number() for dtype in constraint.dtypes],
        ops=constraint.ops,
        world=constraint.world_size,
        ranks_per_node=constraint.n_ranks_per_node,
        root=constraint.root,
    )


def _question(request: Request) -> _abi.Question:
    """A request as the library takes it."""
    hints = request.hints
    dtype = DataType.float32 if request.dtype is DataType.auto else request.dtype
    op, tags, reproducible = hints.get("op"), hints.get("tags"), hints.get("reproducible")
    asked = _abi.Question(
        struct_size=ctypes.sizeof(_abi.Question),
        collective=encoded("collective", request.collective),
        bytes=number("message_size", request._larger(), 64),
        dtype=dtype._number(),
        op=_abi.Op.SUM if op is None else op,
        in_place=bool(request._in_place()),
        root=number("root", hints.get("root") or 0),
        world=number("world_size", request.world_size),
        nodes=request._nodes(),
        reproducible=_abi.Switch.DEFAULT if reproducible is None else _abi.Switch.ON if reproducible else _abi.Switch.OFF,
    )
    if tags is not None:
        put_tags(asked, tags)
    return asked


def _request(question: _abi.Question) -> Request:
    from antiphon.communicator import Op

    reduces = question.op in iter(Op)
    collective = question.collective.decode()
    tags = ctypes.cast(question.tags, ctypes.POINTER(ctypes.c_char_p))
    parts = question.world if collective == "allgather" else 1
    return Request(
        collective=collective,
        world_size=question.world,
        n_ranks_per_node=question.world // max(question.nodes, 1),
        send_buffer=question.send_buffer or 0,
        recv_buffer=question.receive_buffer or 0,
        message_size=question.bytes // max(parts, 1),
        dtype=DataType._of_number(question.dtype),
        hints={
            "op": Op(question.op) if reduces else None,
            "root": question.root,
            "in_place": bool(question.in_place),
            "tags": tuple(tag.decode() for tag in tags[: question.tag_count]),
        },
    )


def register(plan: PlanHandle) -> None:
    """Adds a plan to the registry of this process."""
    ExecutionPlanRegistry().register_plan(plan)


def unregister(plan: PlanHandle) -> None:
    """Takes a plan out of the registry of this process."""
    ExecutionPlanRegistry().unregister_plan(plan.id)


def set_selector(selector: Selector | None) -> None:
    """Sets the function that chooses among the plans of this process."""
    ExecutionPlanRegistry().set_selector(selector)


class Executor:
    """Loads plans and runs them over a communicator."""

    @spelled(comm="communicator")
    def __init__(self, communicator: Communicator) -> None:
        from antiphon.communicator import Communicator
        from antiphon.executor import Loader

        if not isinstance(communicator, Communicator):
            raise TypeError(
                f"cannot run plans over {communicator!r:.80}: allowed a Communicator, as CommGroup(...).communicator is"
            )
        self.communicator = communicator
        """The communicator that it runs over."""
        self._loader = Loader(communicator)

    def load(self, plan: ExecutionPlan | PlanHandle) -> LoadedPlan:
        """The plan, checked, verified and ready to run; each is loaded once.

        Raises PlanRefutedError for a plan that is shown to go wrong, InvalidPlanError for one that is invalid or is for another
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

    @spelled(
        send_buff="send_ptr",
        recv_buff="recv_ptr",
        send_buff_size="send_bytes",
        recv_buff_size="recv_bytes",
        data_type="dtype",
    )
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

        The names of the format's own package, `send_buff`, `recv_buff`, `send_buff_size`, `recv_buff_size` and `data_type`, are
        taken too. `rank` is that of the communicator. With 0 for `stream` it is complete on return; else `stream` is a
        `Stream`, or on a GPU the number of one of the application's. `packet_type` is taken and has no effect: how packets lie
        in scratch is the engine's own affair.
        """
        if rank != self.communicator.rank:
            raise ValueError(f"cannot execute as rank {rank}: allowed {self.communicator.rank}, the communicator's")
        PacketType(packet_type)
        self._loader.execute(self.load(plan), (send_ptr, send_bytes), (recv_ptr, recv_bytes), dtype, stream)

    def reset(self) -> None:
        """Forgets what was loaded: a plan is checked and verified anew when it is next loaded or run. What `load` returned stays usable."""
        self._loader.reset()
