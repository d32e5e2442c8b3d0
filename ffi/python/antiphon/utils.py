"""Small things around running plans."""

from __future__ import annotations

from antiphon.plan import DataType

__all__ = ["dtype_to_mscclpp_dtype", "torch_dtype_to_mscclpp_dtype"]


def torch_dtype_to_mscclpp_dtype(dtype: object) -> DataType:
    """The type of elements that a dtype of torch or numpy is, or that its name says.

    Raises ValueError for one that plans cannot move.
    """
    if isinstance(dtype, DataType):
        return dtype
    # "torch.float16"; of numpy, "float16", or a class with that name.
    name = getattr(dtype, "__name__", str(dtype)).rpartition(".")[2]
    name = {"half": "float16", "float": "float32", "int": "int32"}.get(name, name)
    if name in DataType.__members__ and name != "auto":
        return DataType[name]
    allowed = ", ".join(member.name for member in DataType if member is not DataType.auto)
    raise ValueError(f"cannot use elements of type {dtype}: allowed {allowed}")


dtype_to_mscclpp_dtype = torch_dtype_to_mscclpp_dtype
