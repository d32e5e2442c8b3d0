"""What makes plans to run: `jit.compile`, and `presets`, algorithms that are ready."""

from antiphon import _jit as jit
from antiphon import presets

__all__ = ["jit", "presets"]
