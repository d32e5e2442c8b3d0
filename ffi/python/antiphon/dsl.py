"""What makes plans to run: `jit.compile`, and `presets`, algorithms that are ready."""

import antiphon._jit as jit
import antiphon.presets as presets

__all__ = ["jit", "presets"]
