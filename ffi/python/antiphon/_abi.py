"""The C interface as the package uses it: numbers and functions of `antiphon.h`, which a test compares.

A function is written as its result and its parameters, in the words of the header without names; `ctypes` has the same
in its own words in `TYPES`.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum

__all__ = ["FUNCTIONS", "MAJOR", "MINOR", "TYPES", "Config", "Dtype", "Op", "Result", "Switch", "UniqueId", "Verdict"]

MAJOR = 1
"""The major number of the interface that the package was written for."""
MINOR = 1
"""The least minor number that it needs."""


class Result(IntEnum):
    """`antiphon_result`."""

    SUCCESS = 0
    INVALID_ARGUMENT = 1
    INVALID_HANDLE = 2
    INVALID_PLAN = 3
    PLAN_REFUTED = 4
    UNSUPPORTED = 5
    FILE = 6
    SYSTEM = 7
    RENDEZVOUS = 8
    TIMEOUT = 9
    MISMATCH = 10
    PEER_LOST = 11
    ABORTED = 12
    BUFFER_TOO_SMALL = 13
    INTERNAL = 14


class Verdict(IntEnum):
    """`antiphon_verdict`."""

    PROVEN = 0
    NOT_PROVEN = 1
    NOT_VERIFIED = 2


class Dtype(IntEnum):
    """`antiphon_dtype`."""

    F16 = 0
    BF16 = 1
    F32 = 2
    F64 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    U32 = 7
    I64 = 8
    U64 = 9
    F8E4M3 = 10
    F8E5M2 = 11


class Op(IntEnum):
    """`antiphon_op`."""

    OF_PLAN = -1
    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4


class Switch(IntEnum):
    """`antiphon_switch`."""

    DEFAULT = 0
    ON = 1
    OFF = 2


class UniqueId(ctypes.Structure):
    """`antiphon_unique_id`."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """`antiphon_config`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
        ("verification", ctypes.c_int32),
        ("process_access", ctypes.c_int32),
        ("wire", ctypes.c_char_p),
        ("network_interface", ctypes.c_char_p),
    ]


_HANDLE = ctypes.c_void_p

TYPES: dict[str, object] = {
    "antiphon_result": ctypes.c_int32,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "char*": ctypes.c_char_p,
    "void*": ctypes.c_void_p,
    "void**": ctypes.POINTER(ctypes.c_void_p),
    "int32_t*": ctypes.POINTER(ctypes.c_int32),
    "uint32_t*": ctypes.POINTER(ctypes.c_uint32),
    "uint64_t*": ctypes.POINTER(ctypes.c_uint64),
    "antiphon_result*": ctypes.POINTER(ctypes.c_int32),
    "antiphon_verdict*": ctypes.POINTER(ctypes.c_int32),
    "antiphon_unique_id*": ctypes.POINTER(UniqueId),
    "antiphon_config*": ctypes.POINTER(Config),
    "antiphon_communicator*": _HANDLE,
    "antiphon_executor*": _HANDLE,
    "antiphon_memory*": _HANDLE,
    "antiphon_plan*": _HANDLE,
    "antiphon_stream*": _HANDLE,
    "antiphon_communicator**": ctypes.POINTER(_HANDLE),
    "antiphon_executor**": ctypes.POINTER(_HANDLE),
    "antiphon_memory**": ctypes.POINTER(_HANDLE),
    "antiphon_plan**": ctypes.POINTER(_HANDLE),
    "antiphon_stream**": ctypes.POINTER(_HANDLE),
}
"""What `ctypes` calls a type of the header."""

_COUNTED = "antiphon_communicator* void* void* uint64_t int32_t"

FUNCTIONS: dict[str, tuple[str, str]] = {
    "antiphon_abi_version": ("uint32_t", ""),
    "antiphon_version": ("char*", ""),
    "antiphon_last_error": ("char*", ""),
    "antiphon_unique_id_create": ("antiphon_result", "antiphon_unique_id*"),
    "antiphon_communicator_create": (
        "antiphon_result",
        "antiphon_unique_id* uint32_t uint32_t antiphon_config* antiphon_communicator**",
    ),
    "antiphon_communicator_create_from_environment": ("antiphon_result", "antiphon_config* antiphon_communicator**"),
    "antiphon_communicator_create_at": (
        "antiphon_result",
        "char* uint32_t uint32_t antiphon_config* antiphon_communicator**",
    ),
    "antiphon_communicator_create_in_process": (
        "antiphon_result",
        "uint32_t antiphon_config* antiphon_communicator**",
    ),
    "antiphon_communicator_split": (
        "antiphon_result",
        "antiphon_communicator* int32_t uint32_t antiphon_communicator**",
    ),
    "antiphon_communicator_rank": ("antiphon_result", "antiphon_communicator* uint32_t*"),
    "antiphon_communicator_world": ("antiphon_result", "antiphon_communicator* uint32_t*"),
    "antiphon_communicator_node": ("antiphon_result", "antiphon_communicator* uint32_t uint32_t*"),
    "antiphon_communicator_abort": ("antiphon_result", "antiphon_communicator* char*"),
    "antiphon_communicator_async_error": ("antiphon_result", "antiphon_communicator* antiphon_result*"),
    "antiphon_communicator_destroy": ("antiphon_result", "antiphon_communicator*"),
    "antiphon_memory_allocate": ("antiphon_result", "antiphon_communicator* uint64_t antiphon_memory**"),
    "antiphon_memory_address": ("antiphon_result", "antiphon_memory* void**"),
    "antiphon_memory_free": ("antiphon_result", "antiphon_memory*"),
    "antiphon_stream_create": ("antiphon_result", "antiphon_communicator* antiphon_stream**"),
    "antiphon_stream_synchronize": ("antiphon_result", "antiphon_stream*"),
    "antiphon_stream_query": ("antiphon_result", "antiphon_stream* int32_t*"),
    "antiphon_stream_destroy": ("antiphon_result", "antiphon_stream*"),
    "antiphon_barrier": ("antiphon_result", "antiphon_communicator*"),
    "antiphon_all_reduce": ("antiphon_result", f"{_COUNTED} int32_t antiphon_stream*"),
    "antiphon_all_gather": ("antiphon_result", f"{_COUNTED} antiphon_stream*"),
    "antiphon_reduce_scatter": ("antiphon_result", f"{_COUNTED} int32_t antiphon_stream*"),
    "antiphon_all_to_all": ("antiphon_result", f"{_COUNTED} antiphon_stream*"),
    "antiphon_all_to_all_v": (
        "antiphon_result",
        "antiphon_communicator* void* uint64_t* uint64_t* void* uint64_t* uint64_t* int32_t antiphon_stream*",
    ),
    "antiphon_broadcast": ("antiphon_result", f"{_COUNTED} uint32_t antiphon_stream*"),
    "antiphon_reduce": ("antiphon_result", f"{_COUNTED} int32_t uint32_t antiphon_stream*"),
    "antiphon_gather": ("antiphon_result", f"{_COUNTED} uint32_t antiphon_stream*"),
    "antiphon_scatter": ("antiphon_result", f"{_COUNTED} uint32_t antiphon_stream*"),
    "antiphon_send": ("antiphon_result", "antiphon_communicator* void* uint64_t int32_t uint32_t antiphon_stream*"),
    "antiphon_receive": (
        "antiphon_result",
        "antiphon_communicator* void* uint64_t int32_t uint32_t antiphon_stream*",
    ),
    "antiphon_executor_create": ("antiphon_result", "antiphon_communicator* antiphon_executor**"),
    "antiphon_executor_destroy": ("antiphon_result", "antiphon_executor*"),
    "antiphon_plan_load_file": ("antiphon_result", "antiphon_executor* char* antiphon_plan**"),
    "antiphon_plan_load_bytes": ("antiphon_result", "antiphon_executor* void* uint64_t antiphon_plan**"),
    "antiphon_plan_load_name": ("antiphon_result", "antiphon_executor* char* int32_t uint32_t antiphon_plan**"),
    "antiphon_plan_verdict": ("antiphon_result", "antiphon_plan* antiphon_verdict*"),
    "antiphon_plan_report": ("antiphon_result", "antiphon_plan* char* uint64_t uint64_t*"),
    "antiphon_plan_destroy": ("antiphon_result", "antiphon_plan*"),
    "antiphon_execute": (
        "antiphon_result",
        "antiphon_executor* antiphon_plan* void* uint64_t void* uint64_t int32_t int32_t antiphon_stream*",
    ),
}
"""The functions that the package calls: result, parameters."""
