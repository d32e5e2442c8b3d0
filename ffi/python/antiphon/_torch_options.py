"""What callers of torch's say of a call besides its tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from antiphon.communicator import Op
from antiphon.errors import UnsupportedError

__all__ = ["device_of", "op_of"]

_OPS = [
    (dist.ReduceOp.SUM, Op.sum),
    (dist.ReduceOp.PRODUCT, Op.prod),
    (dist.ReduceOp.MIN, Op.min),
    (dist.ReduceOp.MAX, Op.max),
    (dist.ReduceOp.AVG, Op.avg),
]


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
