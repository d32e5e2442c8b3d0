"""What callers of torch's say of a call besides its tensors."""

from __future__ import annotations

from datetime import timedelta
from numbers import Integral
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from antiphon._torch_streams import seconds_of
from antiphon.communicator import Op
from antiphon.errors import UnsupportedError

__all__ = ["Asked", "asked", "device_of", "op_of"]

_OPS = [
    (dist.ReduceOp.SUM, Op.sum),
    (dist.ReduceOp.PRODUCT, Op.prod),
    (dist.ReduceOp.MIN, Op.min),
    (dist.ReduceOp.MAX, Op.max),
    (dist.ReduceOp.AVG, Op.avg),
]


class Asked(NamedTuple):
    """What a call is to do."""

    op: Op
    root: int
    seconds: float | None
    """How long a `wait` without a timeout of its own may take; None for as long as the group's time limit lets it."""


def asked(opts: Any, op: Any = None, root: int | None = None, timeout: Any = None) -> Asked:
    """What the caller says by torch's options, by a reduction, a root or a time in their place, or by names, which count more."""
    if isinstance(opts, Integral):
        opts, root = None, int(opts) if root is None else root
    if isinstance(opts, timedelta):
        opts, timeout = None, opts if timeout is None else timeout
    # All of torch's options have a time; what has none is a reduction.
    reduction = getattr(opts, "reduceOp", None if hasattr(opts, "timeout") else opts) if op is None else op
    chosen = int(getattr(opts, "rootRank", 0) if root is None else root)
    return Asked(op_of(reduction), chosen, seconds_of(getattr(opts, "timeout", None) if timeout is None else timeout))


def op_of(opts: Any) -> Op:
    """The reduction that the caller asks for: a sum unless it says otherwise."""
    asked = getattr(opts, "reduceOp", opts)
    if asked is None:
        return Op.sum
    for theirs, ours in _OPS:
        if asked == theirs:
            return ours
    named = [name for name in ("BAND", "BOR", "BXOR", "PREMUL_SUM") if asked == getattr(dist.ReduceOp, name, None)]
    raise UnsupportedError(f"cannot reduce by {named[0] if named else asked}: allowed SUM, PRODUCT, MIN, MAX and AVG")


def device_of(opts: Any) -> Any:
    """The GPU that the caller of a barrier names; None if it names none."""
    named = getattr(opts, "device", None)
    if named is None and (ids := list(getattr(opts, "device_ids", None) or [])):
        named = torch.device("cuda", ids[0])
    if named is None or named.type != "cuda":
        return None
    return named if named.index is not None else torch.device("cuda", torch.cuda.current_device())
