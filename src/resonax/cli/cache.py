"""The compilation cache of jax on disk, so that a second call of a command compiles nothing.

What is read from it is run. So it is used only where nobody else can have put anything into it.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import stat
import sys
import warnings
from pathlib import Path
from typing import Any

from resonax.cli.environment import check_environment

__all__ = ["cache_folder", "keep_compiled", "open_to_others", "prune"]

_TROUBLE = re.compile(r"Error (reading|writing) persistent compilation cache entry for '([^']*)'")
_LARGEST = 2**30  # bytes of all entries


def keep_compiled() -> None:
    """Let jax keep what it compiles; leave it as it is where the user has named a folder to it."""
    check_environment()
    import jax

    if jax.config.jax_compilation_cache_dir:  # pyrefly: ignore[missing-attribute]
        return
    folder = cache_folder()
    if open_folder := open_to_others(folder):
        _say(
            f"compiled programs are not kept, as others can write to {open_folder}, and what is "
            "read from there is run: take that right from them (chmod go-w), or let RESONAX_CACHE "
            "name a folder of your own"
        )
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
    jax.config.update("jax_compilation_cache_max_size", -1)  # a limit of jax takes a file lock
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    _mend(home)


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


def _say(sentence: str) -> None:
    """Say something once: workers leave it to the process that started them."""
    if multiprocessing.parent_process() is None:
        print(f"resonax: {sentence}", file=sys.stderr, flush=True)


def _mend(home: Path) -> None:
    """Remove entries that jax cannot read, and say so once, in place of its warnings.

    jax warns of such an entry, compiles anew, and keeps what is new only if the old entry is gone.
    """
    show, told = warnings.showwarning, set()

    def hear(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        trouble = _TROUBLE.match(str(message))
        if trouble is None:
            return show(message, category, *rest, **more)
        kind, name = trouble.groups()
        if kind == "reading":
            for entry in home.glob(f"{name}-*-cache"):
                with contextlib.suppress(OSError):  # a folder: it stays, and jax does without it
                    entry.unlink(missing_ok=True)
        if kind not in told:
            told.add(kind)
            _say(f"the compilation cache {home} {_WORDS[kind]}")
        return None

    warnings.filterwarnings("always", _TROUBLE.pattern, UserWarning)
    warnings.showwarning = hear


_WORDS = {
    "reading": "had damaged entries, which are removed and compiled anew",
    "writing": "could not be written to, so that the next call compiles anew",
}
