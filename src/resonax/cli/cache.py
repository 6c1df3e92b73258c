"""What jax compiled is kept between two calls of a command."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["keep_compiled"]


def keep_compiled() -> None:
    """Let jax keep what it compiled, so that the second call of a command is quick."""
    import jax

    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "resonax" / "jax"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # no place to keep it: compile anew each time
    if not os.access(home, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(home))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
