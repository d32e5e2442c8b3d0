"""The C interface as the package uses it: numbers and functions of `antiphon.h`; a test compares them with the header.

A function is written as its result and its parameters, in the words of the header without names; `ctypes` has the same
in its own words in `TYPES`.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any

__all__ = [
    "ANSWER_BYTES",
    "DESTROY",
    "FUNCTIONS",
    "MAJOR",
    "MINOR",
    "RUN",
    "SELECT",
    "TYPES",
    "Code",
    "CodeCall",
    "Config",
    "Dtype",
    "LogLevel",
    "Op",
    "Question",
    "Result",
    "Switch",
    "Terms",
    "UniqueId",
    "Verdict",
]

MAJOR = 1
"""The major number of the interface that the package was written for."""
MINOR = 16
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


class LogLevel(IntEnum):
    """`antiphon_log_level`."""

    ERROR = 1
    WARN = 2
    INFO = 3
    DEBUG = 4
    TRACE = 5


class UniqueId(ctypes.Structure):
    """`antiphon_unique_id`."""

    _fields_ = [("bytes", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    """`antiphon_config`."""

    lists: Any
    """What its lists refer to."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("timeout_ms", ctypes.c_int64),
        ("verification", ctypes.c_int32),
        ("process_access", ctypes.c_int32),
        ("wire", ctypes.c_char_p),
        ("network_interface", ctypes.c_char_p),
        ("reproducible", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("device", ctypes.c_char_p),
        ("block_threads", ctypes.c_uint64),
        ("tags", ctypes.c_void_p),
        ("tag_count", ctypes.c_uint64),
        ("kernels", ctypes.c_char_p),
        ("multicast", ctypes.c_int32),
        ("legacy_ipc", ctypes.c_int32),
        ("name", ctypes.c_char_p),
    ]


class Terms(ctypes.Structure):
    """`antiphon_terms`."""

    lists: Any
    """What its lists refer to."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("tags", ctypes.c_void_p),
        ("tag_count", ctypes.c_uint64),
        ("min_bytes", ctypes.c_uint64),
        ("max_bytes", ctypes.c_uint64),
        ("dtypes", ctypes.c_void_p),
        ("dtype_count", ctypes.c_uint64),
        ("ops", ctypes.c_void_p),
        ("op_count", ctypes.c_uint64),
        ("world", ctypes.c_uint32),
        ("ranks_per_node", ctypes.c_uint32),
        ("in_place", ctypes.c_int32),
        ("has_root", ctypes.c_int32),
        ("root", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Question(ctypes.Structure):
    """`antiphon_question`."""

    lists: Any
    """What its lists refer to."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("collective", ctypes.c_char_p),
        ("bytes", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("in_place", ctypes.c_int32),
        ("premultiplied", ctypes.c_int32),
        ("root", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
        ("nodes", ctypes.c_uint32),
        ("candidate_count", ctypes.c_uint32),
        ("candidates", ctypes.c_void_p),
        ("send_buffer", ctypes.c_void_p),
        ("receive_buffer", ctypes.c_void_p),
        ("tags", ctypes.c_void_p),
        ("tag_count", ctypes.c_uint64),
        ("reproducible", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class CodeCall(ctypes.Structure):
    """`antiphon_code_call`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("send_buffer", ctypes.c_void_p),
        ("send_bytes", ctypes.c_uint64),
        ("receive_buffer", ctypes.c_void_p),
        ("receive_bytes", ctypes.c_uint64),
        ("dtype", ctypes.c_int32),
        ("op", ctypes.c_int32),
        ("in_place", ctypes.c_int32),
        ("root", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("world", ctypes.c_uint32),
        ("native_stream", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("recorded", ctypes.c_int32),
        ("send_counts", ctypes.c_void_p),
        ("send_offsets", ctypes.c_void_p),
        ("receive_counts", ctypes.c_void_p),
        ("receive_offsets", ctypes.c_void_p),
    ]


SELECT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Question), ctypes.c_void_p)
"""`antiphon_select_function`. Whatever thread calls it, it has the GIL while it runs."""
RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(CodeCall))
"""`antiphon_run_function`. Likewise."""
DESTROY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
"""`antiphon_destroy_function`. Likewise."""
ANSWER_BYTES = 1024
"""`ANTIPHON_ANSWER_BYTES`."""


class Code(ctypes.Structure):
    """`antiphon_code`."""

    _fields_ = [
        ("struct_size", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("version", ctypes.c_uint64),
        ("collective", ctypes.c_char_p),
        ("run", RUN),
        ("context", ctypes.c_void_p),
        ("destroy", DESTROY),
        ("serves_devices", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
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
    "antiphon_terms*": ctypes.POINTER(Terms),
    "antiphon_question*": ctypes.POINTER(Question),
    "antiphon_code*": ctypes.POINTER(Code),
    # The package sets none.
    "antiphon_log_function": ctypes.c_void_p,
    "antiphon_select_function": SELECT,
    "antiphon_destroy_function": DESTROY,
    "antiphon_communicator*": _HANDLE,
    "antiphon_executor*": _HANDLE,
    "antiphon_memory*": _HANDLE,
    "antiphon_plan*": _HANDLE,
    "antiphon_stream*": _HANDLE,
    "antiphon_log_queue*": _HANDLE,
    "antiphon_log_queue**": ctypes.POINTER(_HANDLE),
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
    "antiphon_last_error": ("char*", ""),
    "antiphon_last_error_peer": ("int32_t", ""),
    "antiphon_set_last_error": ("antiphon_result", "char*"),
    "antiphon_set_logger": ("antiphon_result", "antiphon_log_function void* antiphon_destroy_function"),
    "antiphon_log_queue_create": ("antiphon_result", "uint64_t antiphon_log_queue**"),
    "antiphon_log_queue_take": ("antiphon_result", "antiphon_log_queue* char* uint64_t int32_t* uint64_t*"),
    "antiphon_log_queue_destroy": ("antiphon_result", "antiphon_log_queue*"),
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
    "antiphon_local_rank": ("antiphon_result", "uint32_t*"),
    "antiphon_communicator_split_as": (
        "antiphon_result",
        "antiphon_communicator* int32_t uint32_t char* antiphon_communicator**",
    ),
    "antiphon_communicator_subset_as": (
        "antiphon_result",
        "antiphon_communicator* uint32_t* uint32_t char* antiphon_communicator**",
    ),
    "antiphon_communicator_name": ("antiphon_result", "antiphon_communicator* char* uint64_t uint64_t*"),
    "antiphon_communicator_lost": ("antiphon_result", "antiphon_communicator* uint32_t* uint32_t uint32_t*"),
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
    "antiphon_stream_adopt": ("antiphon_result", "antiphon_communicator* void* antiphon_stream**"),
    "antiphon_stream_synchronize": ("antiphon_result", "antiphon_stream*"),
    "antiphon_stream_query": ("antiphon_result", "antiphon_stream* int32_t*"),
    "antiphon_stream_destroy": ("antiphon_result", "antiphon_stream*"),
    "antiphon_group_begin": ("antiphon_result", ""),
    "antiphon_group_end": ("antiphon_result", ""),
    "antiphon_group_cancel": ("antiphon_result", ""),
    "antiphon_barrier": ("antiphon_result", "antiphon_communicator*"),
    "antiphon_all_reduce": ("antiphon_result", f"{_COUNTED} int32_t antiphon_stream*"),
    "antiphon_all_gather": ("antiphon_result", f"{_COUNTED} antiphon_stream*"),
    "antiphon_reduce_scatter": ("antiphon_result", f"{_COUNTED} int32_t antiphon_stream*"),
    "antiphon_all_to_all": ("antiphon_result", f"{_COUNTED} antiphon_stream*"),
    "antiphon_all_to_all_v": (
        "antiphon_result",
        "antiphon_communicator* void* uint64_t* uint64_t* void* uint64_t* uint64_t* int32_t antiphon_stream*",
    ),
    "antiphon_all_gather_v": (
        "antiphon_result",
        "antiphon_communicator* void* uint64_t void* uint64_t* uint64_t* int32_t antiphon_stream*",
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
    "antiphon_executor_abort": ("antiphon_result", "antiphon_executor* char*"),
    "antiphon_executor_destroy": ("antiphon_result", "antiphon_executor*"),
    "antiphon_plan_load_bytes": ("antiphon_result", "antiphon_executor* void* uint64_t antiphon_plan**"),
    "antiphon_plan_load_name": ("antiphon_result", "antiphon_executor* char* int32_t uint32_t antiphon_plan**"),
    "antiphon_plan_verdict": ("antiphon_result", "antiphon_plan* antiphon_verdict*"),
    "antiphon_plan_report": ("antiphon_result", "antiphon_plan* char* uint64_t uint64_t*"),
    "antiphon_plan_destroy": ("antiphon_result", "antiphon_plan*"),
    "antiphon_registry_register_bytes": ("antiphon_result", "void* uint64_t antiphon_terms*"),
    "antiphon_registry_register_code": ("antiphon_result", "antiphon_code* antiphon_terms*"),
    "antiphon_registry_unregister": ("antiphon_result", "char*"),
    "antiphon_registry_list": ("antiphon_result", "char* uint64_t uint64_t*"),
    "antiphon_registry_set_selector": (
        "antiphon_result",
        "antiphon_select_function void* antiphon_destroy_function",
    ),
    "antiphon_install_bytes": ("antiphon_result", "void* uint64_t antiphon_terms*"),
    "antiphon_uninstall": ("antiphon_result", "char*"),
    "antiphon_install_defaults": ("antiphon_result", "uint32_t uint32_t"),
    "antiphon_explain": (
        "antiphon_result",
        "antiphon_communicator* antiphon_question* int32_t char* uint64_t uint64_t*",
    ),
    "antiphon_registry_explain": (
        "antiphon_result",
        "antiphon_question* int32_t char* uint64_t uint64_t*",
    ),
    "antiphon_execute": (
        "antiphon_result",
        "antiphon_executor* antiphon_plan* void* uint64_t void* uint64_t int32_t int32_t antiphon_stream*",
    ),
}
"""The functions that the package calls: for each its result and its parameters."""
