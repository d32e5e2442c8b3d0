"""The oldest stage's module of enums."""

from antiphon.language.internal.types import (
    BufferType,
    ChannelType,
    DataFormat,
    ReduceOperationType,
    ReplicationPolicy,
    SyncType,
)

__all__ = ["BufferType", "ChannelType", "DataFormat", "ReduceOperationType", "ReplicationPolicy", "SyncType"]
