"""Tensors of torch as buffers of calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from antiphon._buffers import NAMES, Span, name_of
from antiphon.communicator import Op
from antiphon.errors import InvalidArgumentError, UnsupportedError

__all__ = ["NAMED", "Parts", "Side", "copy", "joined", "listed", "listed_twice", "parted", "tensors_of", "unwrapped"]


_PARTS = {torch.complex32: "float16", torch.complex64: "float32", torch.complex128: "float64"}
"""The types of the pairs of numbers that complex numbers are."""

NAMED = {Op.sum: "SUM", Op.prod: "PRODUCT", Op.min: "MIN", Op.max: "MAX", Op.avg: "AVG"}
"""Reductions as torch names them."""


class Side:
    """A tensor as a buffer. Its call is made inside it as a context: on entry the buffer gets the tensor's numbers, and on
    exit, unless the call failed, the tensor gets what was received, if the buffer is a copy. A `given` tensor is only read."""

    def __init__(self, tensor: Any, reduced: Op | None = None, *, given: bool = False) -> None:
        self._original = tensor = _checked(tensor).detach()
        self._given = given
        self.parts: list[Any] = []
        """Tensors that lie outside the buffer, and are copied to or from it."""
        # A copy is filled when it is the call's turn: calls before it may change the tensor.
        self.tensor = tensor if _plain(tensor) else tensor.new_empty(tensor.shape)
        """The given tensor, or a contiguous one that its numbers are copied to."""
        dtype, self.op = NAMES.get(name_of(tensor.dtype)), Op.sum if reduced is None else reduced
        """The reduction of its elements."""
        if tensor.dtype == torch.bool and reduced not in (None, Op.avg):
            # The result must stay zeros and ones, so a sum becomes a maximum, which says whether there is a one.
            dtype, self.op = NAMES["uint8"], Op.max if reduced == Op.sum else self.op
        if tensor.dtype in _PARTS and reduced in (Op.sum, Op.avg):
            dtype = NAMES[_PARTS[tensor.dtype]]
        if reduced is not None and dtype is None:
            raise InvalidArgumentError(
                f"cannot reduce tensors of {tensor.dtype} by {NAMED[reduced]}: allowed {', '.join(NAMES)}, bool but by AVG, and "
                "complex numbers by SUM and AVG"
            )
        item = self.tensor.element_size()
        self.span = Span(self.tensor.data_ptr(), self.tensor.numel() * item, dtype, self.tensor, item=item)
        """Where its bytes are."""

    def __enter__(self) -> Side:
        if self.tensor is not self._original:
            copy(self._original, self.tensor)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None and self.tensor is not self._original and not self._given:
            copy(self.tensor, self._original)


class Parts(Side):
    """Tensors as a buffer in which they are one behind the other. It is their own memory if they lie so there, unless one of
    those `beside` them, which the call also uses, overlaps it."""

    def __init__(self, parts: list[Any], reduced: Op | None = None, *, given: bool = False, beside: list[Any]) -> None:
        parts, beside = ([_checked(tensor) for tensor in tensors] for tensors in (parts, beside))
        if len(types := {str(part.dtype) for part in parts}) != 1:
            raise InvalidArgumentError(f"cannot join {len(parts)} tensors of {', '.join(sorted(types))}: allowed one type")
        parts = [part.detach() for part in parts]
        whole = _whole(parts, beside)
        if whole is None:
            super().__init__(parts[0].new_empty(sum(part.numel() for part in parts)), reduced, given=given)
            self.parts = parts
        else:
            super().__init__(whole, reduced, given=given)

    def __enter__(self) -> Side:
        if self._given:
            for part, place in self._each():
                copy(part, place)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed is None and not self._given:
            for part, place in self._each():
                copy(place, part)

    def _each(self) -> Iterator[tuple[Any, Any]]:
        begin = 0
        for part in self.parts:
            end = begin + part.numel()
            yield part, self.tensor[begin:end].view_as(part)
            begin = end


def unwrapped(tensor: Any) -> Any:
    """What a tensor wraps that is the result of a call of PyTorch's functional collectives, once that is waited for; any other
    tensor as it is."""
    wait = getattr(tensor, "trigger_wait", None)
    waited = None if wait is None else wait()
    return waited if isinstance(waited, torch.Tensor) else tensor


def _checked(tensor: Any) -> Any:
    """The tensor whose memory has the numbers; refuses one that calls cannot use."""
    tensor = unwrapped(tensor)
    if tensor.device.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"cannot use a tensor on {tensor.device}: allowed tensors on the CPU, and on GPUs that PyTorch calls cuda"
        )
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"cannot use a tensor of layout {tensor.layout}: allowed dense tensors")
    if tensor.numel() and not _address(tensor):
        raise UnsupportedError(
            f"cannot use a {type(tensor).__name__}, which has no memory: allowed tensors that have their numbers themselves; give what it "
            "wraps, of a DTensor by `.to_local()`"
        )
    return tensor


def _address(tensor: Any) -> int:
    """Where a tensor's numbers begin; 0 for one that has none."""
    try:
        return int(tensor.data_ptr())
    except RuntimeError:
        # Some releases of PyTorch say so of those that have none.
        return 0


def _plain(tensor: Any) -> bool:
    """Whether a tensor's memory holds its numbers as a call needs them: one behind the other, each where its size divides the address."""
    # The memory of a tensor that is only marked as conjugated or negated holds other numbers.
    return bool(
        tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg() and tensor.data_ptr() % tensor.element_size() == 0
    )


def _whole(parts: list[Any], beside: list[Any]) -> Any:
    """The tensor that `parts` make up, one behind the other; None if they do not, or one of those `beside` them overlaps it."""
    filled = [part for part in parts if part.numel()]
    if not filled or not all(map(_plain, filled)):
        return None
    first = filled[0]
    begin = end = first.data_ptr()
    for part in filled:
        # Two allocations may also lie one behind the other, but one tensor cannot span them.
        if part.data_ptr() != end or not torch._C._is_alias_of(first, part):
            return None
        end += part.numel() * part.element_size()
    if any(begin < last and other < end for other, last in map(_extent, beside)):
        return None
    return first.as_strided((sum(part.numel() for part in filled),), (1,))


def _extent(tensor: Any) -> tuple[int, int]:
    """The addresses where a tensor begins and ends."""
    begin, size = tensor.data_ptr(), 0
    if tensor.numel():
        size = 1 + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return begin, begin + size * tensor.element_size()


def copy(source: Any, target: Any) -> None:
    """Gives a tensor the numbers of another."""
    # The caller may have been in inference mode, and then only in it can its tensors be written.
    with torch.inference_mode():
        target.copy_(source)


def tensors_of(sides: list[Side]) -> list[Any]:
    """What a call reads and writes, each tensor once."""
    each = [tensor for side in sides for tensor in (side.tensor, side._original, *side.parts)]
    return list({id(tensor): tensor for tensor in each}.values())


def listed(tensors: Any) -> list[Any]:
    """A tensor, or several, as a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def listed_twice(tensors: Any) -> list[list[Any]]:
    """Lists of tensors, or one list, as a list of lists."""
    lists = list(tensors)
    return [lists] if lists and isinstance(lists[0], torch.Tensor) else lists


def joined(parts: list[Any], ranks: int, like: Any, reduced: Op | None = None, *, given: bool = False) -> Parts:
    """A part for each rank as one buffer; each is as large as `like`, which the call uses with them."""
    if len(parts) != ranks or any(part.numel() != like.numel() or part.dtype != like.dtype for part in parts):
        raise InvalidArgumentError(
            f"cannot make a call with {len(parts)} tensors of {sorted({part.numel() for part in parts})} elements: "
            f"allowed {ranks} of {like.numel()} each, of one type"
        )
    return Parts(parts, reduced, given=given, beside=[like])


def parted(tensor: Any, sizes: list[int], ranks: int) -> list[int]:
    """How many elements of a tensor each rank has: as much of the first axis as `sizes` says, or equal parts without them."""
    length = tensor.size(0) if tensor.dim() else 1
    if length % ranks if not sizes else len(sizes) != ranks or min(sizes) < 0 or sum(sizes) != length:
        raise InvalidArgumentError(
            f"cannot divide a tensor of shape {list(tensor.shape)} among {ranks} ranks by {list(sizes) or 'equal parts'}: allowed "
            f"{ranks} sizes that make {length} together, or none where the first axis divides by {ranks}"
        )
    each = tensor.numel() // max(1, length)
    return [size * each for size in sizes or [length // ranks] * ranks]
