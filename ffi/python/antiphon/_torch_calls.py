"""Calls of torch that need several of ours: those with tensors of unequal sizes, and with sparse ones."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from antiphon._torch_sides import NAMED, Side, copy, joined, unwrapped
from antiphon._torch_streams import Body
from antiphon.communicator import Communicator, Op, Stream
from antiphon.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Call", "gathering", "in_turn", "reducing", "scattering"]

Call = tuple[Body, list[Side]]
"""The function that makes the call, and the buffers that it uses."""


def in_turn(calls: list[Call]) -> Call:
    """Several calls as one, which makes them one after the other."""

    def body(communicator: Communicator, stream: Stream | None) -> None:
        for each, _ in calls:
            each(communicator, stream)

    return body, [side for _, sides in calls for side in sides]


def _unequal(parts: list[Any], ranks: int, own: Any, like: Any) -> bool:
    """Whether `parts`, one for each rank, differ in size from `like`, though this rank's `own` does not."""
    fit = len(parts) == ranks and own.numel() == like.numel() and all(part.dtype == like.dtype for part in parts)
    return fit and any(part.numel() != like.numel() for part in parts)


def gathering(outputs: list[Any], given: Any, rank: int, ranks: int) -> Call:
    """Gives every rank the tensors of all."""
    given = unwrapped(given)
    source = Side(given, given=True)
    if not _unequal(outputs, ranks, outputs[rank] if rank < len(outputs) else given, given):
        whole = joined(outputs, ranks, given)

        def together(communicator: Communicator, stream: Stream | None) -> None:
            with source, whole:
                communicator.all_gather(source.span, whole.span, stream=stream)

        return together, [whole, source]
    sides = [Side(output) for output in outputs]

    def one_by_one(communicator: Communicator, stream: Stream | None) -> None:
        for root, side in enumerate(sides):
            with side:
                if root == rank:
                    copy(given.detach().reshape(side.tensor.shape), side.tensor)
                communicator.broadcast(side.span, root, stream=stream)

    return one_by_one, [*sides, source]


def scattering(output: Any, inputs: list[Any], op: Op, rank: int, ranks: int) -> Call:
    """Gives rank r the reduction of all ranks' r-th tensors."""
    side = Side(output, reduced=op)
    if not _unequal(inputs, ranks, inputs[rank] if rank < len(inputs) else output, output):
        whole = joined(inputs, ranks, output, op, given=True)

        def together(communicator: Communicator, stream: Stream | None) -> None:
            with whole, side:
                communicator.reduce_scatter(whole.span, side.span, side.op, stream=stream)

        return together, [whole, side]
    sources = [Side(each, reduced=op, given=True) for each in inputs]

    def one_by_one(communicator: Communicator, stream: Stream | None) -> None:
        for root, source in enumerate(sources):
            with source, side if root == rank else contextlib.nullcontext():
                communicator.reduce(source.span, side.span if root == rank else None, side.op, root, stream=stream)

    return one_by_one, [*sources, side]


def reducing(tensor: Any, op: Op, ranks: int) -> Call:
    """Reduces a tensor over all ranks, in place."""
    tensor = unwrapped(tensor)
    if tensor.layout == torch.sparse_coo and tensor.device.type == "cpu":
        return _adding(tensor, op, ranks), [Side(tensor.detach()._values(), given=True)]
    side = Side(tensor, reduced=op)

    def body(communicator: Communicator, stream: Stream | None) -> None:
        with side:
            communicator.all_reduce(side.span, None, side.op, stream=stream)

    return body, [side]


def _adding(tensor: Any, op: Op, ranks: int) -> Body:
    """Adds the sparse tensors of all ranks: each rank gathers those of all, and adds them itself."""
    if op not in (Op.sum, Op.avg):
        raise UnsupportedError(f"cannot reduce a sparse tensor by {NAMED[op]}: allowed SUM and AVG")
    if op == Op.avg and not (tensor.is_floating_point() or tensor.is_complex()):
        raise InvalidArgumentError(f"cannot reduce a sparse tensor of {tensor.dtype} by AVG: allowed floats and complex numbers")

    def body(communicator: Communicator, _: Stream | None) -> None:
        own = tensor.detach().coalesce()
        indices, values = own.indices().t().contiguous(), own.values()
        counts = _of_all(communicator, torch.tensor([[len(values)]]), [1] * ranks).flatten().tolist()
        indices, values = (_of_all(communicator, each, counts) for each in (indices, values))
        total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
        with torch.inference_mode(tensor.is_inference()), torch.no_grad():
            tensor.copy_(total / ranks if op == Op.avg else total)

    return body


def _of_all(communicator: Communicator, rows: Any, counts: list[int]) -> Any:
    """The rows of all ranks one behind the other; rank r has `counts[r]` of them."""
    most = max(counts)
    padded = rows.new_zeros(most, *rows.shape[1:])
    padded[: len(rows)] = rows
    every = rows.new_empty(len(counts), most, *rows.shape[1:])
    communicator.all_gather(Side(padded).span, Side(every).span)
    return torch.cat([part[:count] for part, count in zip(every, counts, strict=True)])
