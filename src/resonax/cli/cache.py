"""What a command needs of jax: an environment in which it starts, and its compilation cache.

What is read from the cache is run. So it is used only where nobody else can have put anything into
it.
"""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path

from resonax.core.errors import ArgumentError, shorten

__all__ = ["find_fault", "keep_compiled", "open_to_others", "prune"]

_LARGEST = 2**30  # bytes of all entries
_START = "import jax; jax.devices()"


def keep_compiled() -> None:
    """Let jax keep what it compiles, in our folder or in the one that the user has named to it."""
    _check_environment()
    import jax

    named = jax.config.jax_compilation_cache_dir  # pyrefly: ignore[missing-attribute]
    if named and "://" in named:  # a bucket, whose rights are not those of a folder
        return
    folder = Path(named).absolute() if named else cache_folder()
    if open_folder := open_to_others(folder):
        if multiprocessing.parent_process() is None:  # workers leave it to who started them
            name = "JAX_COMPILATION_CACHE_DIR" if named else "RESONAX_CACHE"
            print(
                f"resonax: compiled programs are not kept, as others can write to {open_folder}, "
                "and what is read from there is run: take that right from them (chmod go-w), or "
                f"let {name} name a folder of your own",
                file=sys.stderr,
                flush=True,
            )
        jax.config.update("jax_compilation_cache_dir", None)
        return
    if named:
        return
    # Programs for a CPU are made for a number of threads: workers have few, and keep their own.
    threads = os.environ.get("PJRT_NPROC", "")
    home = folder.resolve() / (f"jax-{threads}" if threads.isdigit() else "jax")
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        prune(home)
    except OSError:
        return  # no place to keep it: compile anew each time
    if not os.access(home, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(home))
    jax.config.update("jax_compilation_cache_max_size", -1)  # a limit of jax waits for a file lock
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def cache_folder() -> Path:
    """Return the folder that ``RESONAX_CACHE`` names, or ours among the caches of the user."""
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("RESONAX_CACHE") or above / "resonax").absolute()


def open_to_others(folder: Path) -> Path | None:
    """Return the folder through which others can change what is in a folder, if there is one.

    The folder must be the user's own, and no one else may write to it. The same goes for those
    above it, which may be root's as well; in one like ``/tmp``, whose sticky bit is set, others
    cannot replace what is not theirs. On Windows the folders of a user are closed to others.
    """
    if not hasattr(os, "getuid"):
        return None
    real = folder.resolve()
    for each in dict.fromkeys((real, *real.parents, *folder.parents)):
        try:
            found = each.stat()
        except OSError:
            continue  # it is made, for the user alone, or cannot be reached
        is_above = each != real
        owners = {os.getuid(), 0} if is_above else {os.getuid()}
        is_sticky = is_above and found.st_mode & stat.S_ISVTX
        if found.st_uid not in owners or (found.st_mode & 0o022 and not is_sticky):
            return each
    return None


def prune(home: Path, largest: int = _LARGEST) -> None:
    """Remove the entries that were not read for longest, until the others take so many bytes."""
    entries = [(path, path.stat()) for path in home.glob("*-cache")]
    left = largest
    for path, found in sorted(entries, key=lambda entry: -entry[1].st_atime):
        left -= found.st_size
        if left < 0:
            path.unlink(missing_ok=True)


def _check_environment() -> None:
    """Raise `ArgumentError` for flags that would end this process, or make it take hours.

    XLA ends the process that starts with flags it does not know, and with status 1, which would say
    that training diverges. So another process tries them first.
    """
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and multiprocessing.parent_process() is None:
        given = {**os.environ, "JAX_PLATFORMS": "cpu"}
        tried = subprocess.run([sys.executable, "-c", _START], env=given, capture_output=True)
        if tried.returncode != 0:
            raise ArgumentError(
                f"XLA does not start with XLA_FLAGS={shorten(flags)}: correct or unset these flags"
            )
    import jax

    if jax.config.jax_disable_jit:  # pyrefly: ignore[missing-attribute]
        raise ArgumentError(
            "JAX_DISABLE_JIT is set, and without compiled code commands would take hours: unset it"
        )


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
