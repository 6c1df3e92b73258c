"""What of the environment jax cannot start with: each is one sentence in place of a trace."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

from resonax.core.errors import ArgumentError, shorten

__all__ = ["check_environment", "find_fault"]

_START = "import jax; jax.devices()"


def check_environment() -> None:
    """Raise `ArgumentError` for flags that would end this process, or make it take hours.

    XLA ends the process that starts with flags it does not know, and with status 1, which would say
    that training diverges. So another process tries them first.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and multiprocessing.parent_process() is None and not _starts_with(flags):
        raise ArgumentError(
            f"XLA does not start with XLA_FLAGS={shorten(flags)}: correct or unset these flags"
        )
    import jax

    if jax.config.jax_disable_jit:  # pyrefly: ignore[missing-attribute]
        raise ArgumentError(
            "JAX_DISABLE_JIT is set, and without compiled code commands would take hours: unset it"
        )


def _starts_with(flags: str) -> bool:
    if _tried.get(flags) is None:
        given = {**os.environ, "JAX_PLATFORMS": "cpu"}
        tried = subprocess.run([sys.executable, "-c", _START], env=given, capture_output=True)
        _tried[flags] = tried.returncode == 0
    return _tried[flags]


_tried: dict[str, bool] = {}


def find_fault() -> str:
    """Return what keeps jax from starting here, if that explains an error; else nothing.

    Examples
    --------
    >>> find_fault()
    ''
    """
    try:
        import jax

        jax.devices()
    except Exception as error:  # an assertion, where a platform has no device
        named = [name for name in os.environ if name.startswith("JAX_") and os.environ[name]]
        given = ", ".join(f"{name}={os.environ[name]}" for name in sorted(named))
        reason = str(error).split(". ")[0].split("\n")[0][:120] or "it finds no such device"
        return f"jax does not start ({reason}): correct or unset {given or 'its settings'}"
    return ""
