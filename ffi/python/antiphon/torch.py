"""A backend of torch.distributed for tensors on the CPU, and on one GPU for each rank.

    import antiphon.torch
    torch.distributed.init_process_group("antiphon")

A process group has a communicator, and a thread that makes its calls in order; what a call returns is done when the thread
has made it. Sends and receives have a communicator and a thread for each pair, direction and tag, so that they wait for
nobody but their partner. These stay until the group ends, with up to six descriptors each between ranks of a node: so programs do well to use
few tags, and the same ones again. For tensors on a GPU there is another communicator, with a stream (`_torch_streams`) in place
of the thread; sends and receives have both.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from antiphon import _torch_threads as threads
from antiphon._library import at_end, ends_by_exception, patience
from antiphon._torch_calls import gathering, in_turn, reducing, scattering
from antiphon._torch_futures import anew, leave_behind
from antiphon._torch_known import Known, ignored
from antiphon._torch_lanes import Lane, SeveralWorks, end_all
from antiphon._torch_meeting import Meeting, aborted, agree, check_room, destroyed, forked, meet, meet_far, watch
from antiphon._torch_names import named
from antiphon._torch_options import asked, device_of, op_of
from antiphon._torch_profiled import profiled
from antiphon._torch_sides import Parts, Side, joined, listed, listed_twice, parted, tensors_of
from antiphon._torch_streams import Body, Limit, Line, name_of_device, on_one_device, seconds_of
from antiphon._torch_together import Together, called
from antiphon._torch_untraced import untraced
from antiphon.communicator import Communicator, Stream, UniqueId
from antiphon.errors import AntiphonError, InvalidArgumentError, TimedOutError, UnsupportedError

__all__ = ["AntiphonProcessGroup", "register"]

_groups: weakref.WeakSet[AntiphonProcessGroup] = weakref.WeakSet()
"""The groups that somebody still refers to."""


def _forked() -> None:
    """Called in a forked process: the groups that its parent made, and goes on using, refuse calls here."""
    for group in _groups:
        group._leave_behind(forked())
    leave_behind(forked())


os.register_at_fork(after_in_child=_forked)


@at_end
def _end() -> None:
    """The interpreter ends: ends the groups that the program has not destroyed, and has their threads come to rest."""
    try:
        for group in () if ends_by_exception() else list(_groups):
            group._shut()
    finally:  # Also if something interrupts the loop.
        threads.rest(patience())


class AntiphonProcessGroup(Known):
    """A process group whose calls Antiphon makes."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta, name: str = "") -> None:
        super().__init__(store, rank, size, timeout, name)
        self._gpu: tuple[Line, Communicator] | None = None
        self._making = threading.RLock()
        limit = Limit(self._timeout)

        def ask() -> None:
            if error := _broken():
                raise anew(error)
            if not limit.left():
                raise TimedOutError(
                    f"cannot make a process group: not all of its {size} ranks had come within {limit.seconds:g} s; see what the others do "
                    "instead"
                )

        id, self._secret = agree(store, rank, size, ask)
        seconds, own = self._timeout, named(name)
        meeting = Meeting("collectives", lambda _: Communicator.from_id(id, rank, size, timeout=seconds, device="host", name=own))
        communicator = meeting.await_with(ask)
        self._nodes = [communicator.node(other) for other in range(size)]
        self._host = Lane("collectives", lambda _: communicator)
        self._transfers: dict[Any, Lane] = {}
        self._lanes: dict[Any, Lane | Line | Meeting] = {"host": self._host}
        self._refused: AntiphonError | None = None
        # Held while a lane is looked up or begun, and while it is noted that no more may be; never while waiting for ranks.
        self._beginning = threading.RLock()
        self._together = Together()
        self._barriers = self._splits = 0
        self._shut = weakref.finalize(self, end_all, self._lanes)
        self._shut.atexit = False
        _groups.add(self)

    def split_group(
        self,
        new_ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> AntiphonProcessGroup | None:
        """A group of some of this one's ranks, in the order given; None on a rank that is not among them. All ranks call it, each
        with the ranks of its own part. Like any other group it serves all kinds of devices."""
        self._check()
        if len(set(new_ranks)) != len(new_ranks) or not all(0 <= rank < self._size for rank in new_ranks):
            raise InvalidArgumentError(f"cannot split a group of {self._size} ranks: saw {new_ranks}; allowed each of them once at most")
        self._splits += 1
        if self._rank not in new_ranks:
            return None
        ignored(opts)
        # Parts of one split may meet at the same time, so the key has the ranks, too.
        store = dist.PrefixStore(f"antiphon {self._secret} split {self._splits} {new_ranks}", self._store)
        limit = timedelta(seconds=self._timeout) if timeout is None else timeout
        name = group_name or f"{self._named}:split:{self._splits}"
        group = AntiphonProcessGroup(store, new_ranks.index(self._rank), len(new_ranks), limit, name)
        group._described, group._of_split = group_desc or "", True
        return group

    def get_backend(self, device: Any) -> AntiphonProcessGroup:
        """What makes the calls with tensors of a device."""
        return self

    _get_backend = get_backend

    def shutdown(self) -> None:
        """Lets calls end that are under way; later ones are refused."""
        self._refuse(destroyed())
        self._shut()

    def abort(self) -> None:
        """Has calls under way fail, and later ones."""
        self._refuse(aborted())
        for lane in list(self._lanes.values()):
            with contextlib.suppress(AntiphonError):  # It has just been closed; the others are to be aborted all the same.
                lane.abort()

    def _refuse(self, error: AntiphonError) -> None:
        with self._beginning:
            self._refused = self._refused or error

    def _leave_behind(self, error: AntiphonError) -> None:
        self._shut.detach()
        # Locks are as whatever thread left them, and the threads are gone.
        self._beginning, self._making = threading.RLock(), threading.RLock()
        self._refused = error
        self._host.leave_behind(error)

    def _check(self) -> None:
        if error := self._refused or self._host.error():
            raise anew(error)

    @contextlib.contextmanager
    def _begin(self) -> Iterator[None]:
        """Lanes are begun inside it. Raises if the group is broken, or was aborted or destroyed, which ended its lanes."""
        with self._beginning:
            self._check()
            yield

    def set_timeout(self, timeout: timedelta) -> None:
        """Leaves the time limit as it is, and warns."""
        warnings.warn(
            f"the time limit of a group of antiphon stays what it was made with, {self._timeout:g} s; make another by new_group",
            stacklevel=2,
        )

    def _start_coalescing(self, device: Any = None) -> None:
        self._together.works = []

    def _end_coalescing(self, device: Any = None) -> SeveralWorks:
        works, self._together.works = self._together.works or [], None
        return SeveralWorks(works)

    def _submit(self, body: Body, result: Any, used: list[Side], seconds: float | None = None) -> Any:
        """Makes a call where its tensors are: on the host, or on their GPU. A `wait` without a timeout takes at most `seconds`."""
        tensors = tensors_of(used)
        device = on_one_device(tensors)
        if device is None:
            work = self._host.submit(lambda communicator: body(communicator, None), result)
        else:
            with self._making:
                line, communicator = self._on(device)
                work, ready = line.begin(tensors)
                line.make(communicator, body, work, ready, result)
        work.limit = seconds
        return work

    def _on(self, device: Any) -> tuple[Line, Communicator]:
        """The stream and the communicator of the group's tensors on a GPU. All ranks meet when they make their first call there."""
        self._check()
        if self._gpu is None:
            raw = bytearray(bytes(UniqueId.create()) if self._rank == 0 else b"").ljust(128, b"\0")

            def all_come(communicator: Communicator) -> None:
                communicator.broadcast(raw, 0)
                # Waiting here ends when the group does; in the meeting that follows it would go on.
                communicator.barrier()

            # In order with the group's other calls, and not by the store: a thread that waits in that keeps transfers out.
            self._host.submit(all_come, None).wait()
            id, name = UniqueId(bytes(raw).rstrip(b"\0")), name_of_device(device)
            rank, size, limit, own = self._rank, self._size, self._timeout, named(self._named, self._described)
            with self._begin():
                meeting = Meeting(name, lambda _: Communicator.from_id(id, rank, size, timeout=limit, device=name, name=own))
                self._lanes["gpu"] = meeting
            made, line = meeting.communicator(), Line(device)
            line.adopt(made)
            with self._begin():
                self._gpu = line, made
                self._lanes["gpu"] = line
        line, communicator = self._gpu
        if line.device != device:
            raise UnsupportedError(
                f"cannot use a tensor on {device}: the group's are on {line.device}; allowed one GPU for each rank of a group"
            )
        return line, communicator

    # The collectives; their arguments are torch's.

    @called("all_reduce")
    def allreduce(self, tensors: list[Any], opts: Any = None, *, op: Any = None, timeout: timedelta | None = None) -> Any:
        """Reduces each tensor over all ranks, in place."""
        (op, _, seconds), tensors = asked(opts, op, None, timeout), listed(tensors)
        body, sides = in_turn([reducing(tensor, op, self._size) for tensor in tensors])
        return self._submit(body, tensors, sides, seconds)

    allreduce_coalesced = allreduce

    @called("broadcast")
    def broadcast(self, tensors: list[Any], opts: Any = None, *, root: int | None = None, timeout: timedelta | None = None) -> Any:
        """Gives every rank the root's tensors."""
        (_, root, seconds), tensors = asked(opts, None, root, timeout), listed(tensors)
        sides = [Side(tensor) for tensor in tensors]

        def body(communicator: Communicator, stream: Stream | None) -> None:
            for side in sides:
                with side:
                    communicator.broadcast(side.span, root, stream=stream)

        return self._submit(body, tensors, sides, seconds)

    @called("reduce")
    def reduce(
        self, tensors: list[Any], opts: Any = None, *, op: Any = None, root: int | None = None, timeout: timedelta | None = None
    ) -> Any:
        """Reduces each tensor over all ranks, into the root's."""
        (op, root, seconds), tensors = asked(opts, op, root, timeout), listed(tensors)
        sides = [Side(tensor, reduced=op) for tensor in tensors]

        def body(communicator: Communicator, stream: Stream | None) -> None:
            for side in sides:
                with side:
                    communicator.reduce(side.span, None, side.op, root, stream=stream)

        return self._submit(body, tensors, sides, seconds)

    @called("all_gather")
    def allgather(self, output_tensors: list[Any], input_tensors: list[Any], opts: Any = None) -> Any:
        """Gives every rank the tensors of all."""
        lists = listed_twice(output_tensors)
        pairs = zip(lists, listed(input_tensors), strict=True)
        body, sides = in_turn([gathering(outputs, source, self._rank, self._size) for outputs, source in pairs])
        return self._submit(body, lists, sides)

    def allgather_coalesced(self, output_lists: list[Any], input_list: list[Any], opts: Any = None) -> Any:
        """Gives every rank the tensors of all: of rank r, those in the r-th list."""
        turned = [list(outputs) for outputs in zip(*output_lists, strict=True)]
        return self.allgather(turned, input_list, opts)

    @called("all_gather_into_tensor")
    def _allgather_base(self, output: Any, input: Any, opts: Any = None) -> Any:
        whole, source = Side(output), Side(input, given=True)

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with source, whole:
                communicator.all_gather(source.span, whole.span, stream=stream)

        return self._submit(body, [output], [whole, source])

    @called("all_gather_into_tensor")
    def allgather_into_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Gives every rank the tensors of all, joined."""
        pairs = [(Side(output), Side(input, given=True)) for output, input in zip(outputs, inputs, strict=True)]

        def body(communicator: Communicator, stream: Stream | None) -> None:
            for whole, source in pairs:
                with source, whole:
                    communicator.all_gather(source.span, whole.span, stream=stream)

        return self._submit(body, outputs, [side for pair in pairs for side in pair])

    @called("reduce_scatter")
    def reduce_scatter(self, output_tensors: list[Any], input_tensors: list[Any], opts: Any = None) -> Any:
        """Gives rank r the reduction of all ranks' r-th tensors."""
        op, outputs = op_of(opts), listed(output_tensors)
        pairs = zip(outputs, listed_twice(input_tensors), strict=True)
        body, sides = in_turn([scattering(output, inputs, op, self._rank, self._size) for output, inputs in pairs])
        return self._submit(body, outputs, sides)

    @called("reduce_scatter_tensor")
    def _reduce_scatter_base(self, outputTensor: Any, inputTensor: Any, opts: Any = None) -> Any:
        op = op_of(opts)
        whole, side = Side(inputTensor, reduced=op, given=True), Side(outputTensor, reduced=op)

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with whole, side:
                communicator.reduce_scatter(whole.span, side.span, side.op, stream=stream)

        return self._submit(body, [outputTensor], [whole, side])

    @called("reduce_scatter_tensor")
    def reduce_scatter_tensor_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Any:
        """Gives rank r the reduction of all ranks' r-th parts."""
        op = op_of(opts)
        sides = [Side(output, reduced=op) for output in outputs]
        pairs = list(zip(sides, [Side(input, reduced=op, given=True) for input in inputs], strict=True))

        def body(communicator: Communicator, stream: Stream | None) -> None:
            for side, whole in pairs:
                with whole, side:
                    communicator.reduce_scatter(whole.span, side.span, side.op, stream=stream)

        return self._submit(body, outputs, [side for pair in pairs for side in pair])

    @called("all_to_all_single")
    def alltoall_base(
        self,
        output_tensor: Any,
        input_tensor: Any,
        output_split_sizes: list[int],
        input_split_sizes: list[int],
        opts: Any = None,
    ) -> Any:
        """Exchanges parts of tensors along the first axis: equal ones, or of given sizes. All ranks give sizes, or none."""
        whole, source = Side(output_tensor), Side(input_tensor, given=True)
        sends, receives = parted(input_tensor, input_split_sizes, self._size), parted(output_tensor, output_split_sizes, self._size)
        even = not input_split_sizes and not output_split_sizes

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with source, whole:
                if even:
                    communicator.all_to_all(source.span, whole.span, stream=stream)
                else:
                    communicator.all_to_all_v(source.span, sends, whole.span, receives, stream=stream)

        return self._submit(body, [output_tensor], [whole, source])

    @called("all_to_all")
    def alltoall(self, output_tensor: list[Any], input_tensor: list[Any], opts: Any = None) -> Any:
        """Sends the r-th tensor to rank r, and receives one from it."""
        inputs, outputs = listed(input_tensor), listed(output_tensor)
        sends, receives = ([tensor.numel() for tensor in tensors] for tensors in (inputs, outputs))
        source, whole = Parts(inputs, given=True, beside=outputs), Parts(outputs, beside=inputs)

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with source, whole:
                communicator.all_to_all_v(source.span, sends, whole.span, receives, stream=stream)

        return self._submit(body, outputs, [source, whole])

    @called("gather")
    def gather(
        self,
        output_tensors: list[Any],
        input_tensors: list[Any],
        opts: Any = None,
        *,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Gives the root the tensors of all."""
        (_, root, seconds), (source,) = asked(opts, None, root, timeout), listed(input_tensors)
        side = Side(source, given=True)
        outputs = listed_twice(output_tensors)[0] if self._rank == root else []
        whole = joined(outputs, self._size, source) if self._rank == root else None

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with side, whole or contextlib.nullcontext():
                communicator.gather(side.span, whole.span if whole else None, root, stream=stream)

        return self._submit(body, list(outputs), [side, *([whole] if whole else [])], seconds)

    @called("gather")
    def gather_single(self, output: Any, input: Any, opts: Any = None) -> Any:
        """Gives the root the tensors of all, joined."""
        (_, root, seconds), source = asked(opts), Side(input, given=True)
        whole = Side(output) if self._rank == root else None

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with source, whole or contextlib.nullcontext():
                communicator.gather(source.span, whole.span if whole else None, root, stream=stream)

        return self._submit(body, [output], [source, *([whole] if whole else [])], seconds)

    # What later releases of PyTorch call these.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    @called("scatter")
    def scatter(
        self,
        output_tensors: list[Any],
        input_tensors: list[Any],
        opts: Any = None,
        *,
        root: int | None = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Gives rank r the root's r-th tensor."""
        (_, root, seconds), (output,) = asked(opts, None, root, timeout), listed(output_tensors)
        side = Side(output)
        whole = joined(listed_twice(input_tensors)[0], self._size, output, given=True) if self._rank == root else None

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with side, whole or contextlib.nullcontext():
                communicator.scatter(whole.span if whole else None, side.span, root, stream=stream)

        return self._submit(body, [output], [side, *([whole] if whole else [])], seconds)

    def barrier(self, opts: Any = None, *, timeout: timedelta | None = None) -> Any:
        """Is done once all ranks have called it; in a group that has had collectives on GPUs, once their streams have come so far."""
        work = profiled("barrier", lambda: self._barrier(opts))
        work.limit = asked(opts, None, None, timeout).seconds
        return work

    def _barrier(self, opts: Any) -> Any:
        with self._making:
            device = self._gpu[0].device if self._gpu else device_of(opts)
            if device is None:
                return self._host.submit(lambda communicator: communicator.barrier(), [])
            line, communicator = self._on(device)
            return line.barrier(communicator)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Returns when all ranks have called it; if the time is over before, rank 0 names all that have not, whatever
        `wait_all_ranks` says. They meet by PyTorch's store, so the group stays whole even then."""
        self._check()
        self._barriers += 1
        key = f"antiphon {self._secret} barrier {self._barriers}"
        watch(self._store, key, self._rank, self._size, Limit(seconds_of(timeout) or self._timeout), self._check)

    # Between two ranks.

    @called("send")
    def send(self, tensors: list[Any], dstRank: int, tag: int = 0) -> Any:
        """Sends a tensor to a rank, which receives one of the same size by the same tag. Each tag takes a thread and descriptors for
        as long as the group lasts."""
        (tensor,) = listed(tensors)
        side = Side(tensor, given=True)

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with side:
                communicator.broadcast(side.span, 0, stream=stream)

        return self._lane(self._rank, dstRank, tag, side).transfer(body, side, [tensor])

    @called("recv")
    def recv(self, tensors: list[Any], srcRank: int, tag: int = 0) -> Any:
        """Receives a tensor from a rank."""
        (tensor,) = listed(tensors)
        side = Side(tensor)

        def body(communicator: Communicator, stream: Stream | None) -> None:
            with side:
                communicator.broadcast(side.span, 0, stream=stream)

        return self._lane(srcRank, self._rank, tag, side).transfer(body, side, [tensor], srcRank)

    def recv_anysource(self, tensors: list[Any], tag: int = 0) -> Any:
        """Refused."""
        raise UnsupportedError("cannot receive from whoever sends: allowed a rank; give src=")

    def _lane(self, source: int, target: int, tag: int, side: Side) -> Lane:
        """The lane of transfers of one tag from a rank to another, in one kind of memory, made at its first transfer."""
        device = on_one_device([side.tensor])
        key = (source, target, tag, device)
        if source == target or not all(0 <= rank < self._size for rank in (source, target)):
            raise InvalidArgumentError(
                f"cannot send from rank {source} to rank {target}: allowed two different ranks of {self._size}"
            )
        with self._begin():
            lane = self._transfers.get(key)
            if lane is None:
                lane = self._lanes[key] = self._transfers[key] = self._new_lane(*key)
        return lane

    def _new_lane(self, source: int, target: int, tag: int, device: Any) -> Lane:
        used = {other for *_, other in self._transfers if other is not None}
        if device is not None and used - {device}:
            raise UnsupportedError(f"cannot use a tensor on {device}: saw others on {used.pop()}; allowed one GPU for each rank")
        own = int(self._rank != source)
        name = f"{'receive from' if own else 'send to'} rank {source if own else target} by tag {tag}"
        check_room(name, len(self._transfers))
        text = f"{self._secret} {source} {target} {tag} {'host' if device is None else 'gpu'}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        place, password = f"antiphon-{digest[:32]}", digest[32:]
        limit, store = self._timeout, self._store
        called = named(self._named, self._described, name)
        on, line = ("host", None) if device is None else (name_of_device(device), Line(device))
        near, host = self._nodes[source] == self._nodes[target], self._host

        def come(given_up: Callable[[], bool]) -> Communicator:
            def gone() -> bool:
                # If the group has lost a rank, it may be the other one.
                if error := host.error():
                    raise anew(error)
                return given_up()

            return meet(place, password, own, limit, on, gone, called) if near else meet_far(store, place, own, limit, on, gone, called)

        return Lane(name, come, line, limit)


def _broken() -> AntiphonError | None:
    """What broke the default group, if it is one of these: the ranks of every other group are among its own."""
    group = dist.group.WORLD if dist.is_initialized() else None
    return group._host.error() if isinstance(group, AntiphonProcessGroup) else None


def _create(store: Any, rank: int, size: int, timeout: timedelta, name: str = "") -> AntiphonProcessGroup:
    return AntiphonProcessGroup(store, rank, size, timeout, name)


def _create_of(given: Any, options: Any) -> AntiphonProcessGroup:
    """The same, from all that PyTorch says of a group."""
    ignored(options)
    name = str(getattr(given, "group_id", None) or "")
    group = _create(given.store, given.group_rank, given.group_size, given.timeout, name)
    device = getattr(getattr(given, "process_group", None), "bound_device_id", None)
    if device is not None:
        # What barriers name unless their callers do.
        group.bound_device_id = device
    return group


def register() -> None:
    """Makes the backend known as "antiphon"; importing the module does it."""
    if not hasattr(dist.Backend, "ANTIPHON"):
        taken = inspect.signature(dist.Backend.register_backend).parameters
        named = {"devices": ["cpu", "cuda"], "extended_api": True}
        more = {name: value for name, value in named.items() if name in taken}
        dist.Backend.register_backend("antiphon", _create_of if "extended_api" in taken else _create, **more)
        # These need no flight recorder of PyTorch's, which would ask groups made by a split for what only backends in C++ have.
        recorded: set[str] = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        recorded.add("antiphon")


for _kind in (Known, AntiphonProcessGroup):
    untraced(_kind)
register()
