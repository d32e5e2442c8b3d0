"""Channels between ranks."""

from antiphon._native import MemoryChannel, PortChannel, SwitchChannel, SwitchChannelRankView

__all__ = ["MemoryChannel", "PortChannel", "SwitchChannel", "SwitchChannelRankView"]
