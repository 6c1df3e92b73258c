"""A compilation cache on disk for the commands; damaged entries are removed."""

from __future__ import annotations

import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["has_programs", "keep_compiled"]

_TROUBLE = re.compile(r"Error (reading|writing) persistent compilation cache entry for '([^']*)'")


def keep_compiled() -> None:
    """Use the compilation cache, so that the second call of a command is quick.

    It is where ``RESONAX_CACHE`` says, such as a folder that all machines of a cluster see: entries
    have names by processor and versions. It must be writable by its owner alone.
    """
    import jax

    # Programs of a CPU are made for a number of threads: workers have few, and keep their own.
    threads = os.environ.get("PJRT_NPROC", "")
    kind = f"-{threads}" if threads.isdigit() else ""
    home = _place() / f"jax{kind}"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # no place to keep it: compile anew each time
    if not os.access(home, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(home))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    tell = _teller(home)
    _mend(home, tell)
    from resonax.programs import keep_programs

    keep_programs(home.with_name(f"programs{kind}"), tell)


def _place() -> Path:
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("RESONAX_CACHE") or above / "resonax")


def has_programs() -> bool:
    """Return whether programs of this version are kept already, found without jax."""
    from resonax.program_key import source_folder

    return (_place() / "programs" / source_folder()).is_dir()


def _teller(home: Path) -> Callable[[str], None]:
    """Return what says, once each, that the cache could not be read or written."""
    told = set()

    def tell(kind: str) -> None:
        if kind not in told:
            told.add(kind)
            words = {
                "reading": "had damaged entries, which are removed and compiled anew",
                "writing": "could not be written to, so that the next call compiles anew",
            }
            print(f"the compilation cache {home} {words[kind]}", file=sys.stderr, flush=True)

    return tell


def _mend(home: Path, tell: Callable[[str], None]) -> None:
    """Remove entries that jax cannot read, and say so once, in place of its warnings.

    jax warns of such an entry, compiles anew, and keeps what is new only if the old entry is gone.
    """
    show = warnings.showwarning

    def hear(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        trouble = _TROUBLE.match(str(message))
        if trouble is None:
            return show(message, category, *rest, **more)
        kind, program = trouble.groups()
        if kind == "reading":
            _remove_damaged(home, program)
        tell(kind)
        return None

    warnings.filterwarnings("always", _TROUBLE.pattern, UserWarning)
    warnings.showwarning = hear


def _remove_damaged(home: Path, program: str) -> None:
    """Remove the entries of a program that are not whole; all of them, if none of them shows it."""
    entries = [path for path in home.glob("*-cache") if path.name.startswith(f"{program}-")]
    for entry in [path for path in entries if not _is_whole(path)] or entries:
        try:
            entry.unlink(missing_ok=True)
        except OSError:  # a folder, or not ours: it stays, and jax does without it
            continue


def _is_whole(entry: Path) -> bool:
    """Return whether an entry can be unpacked, which compares its checksum."""
    try:
        zlib.decompress(entry.read_bytes())
    except (OSError, zlib.error):
        return False
    return True
