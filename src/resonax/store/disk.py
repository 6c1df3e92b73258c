"""Temporary files that no kill leaves for ever, locks of folders, and errors of the disk.

A temporary file has a name of its own and is locked by the process that writes it. The
lock ends with the process, however that ends: what is there without a lock was left by a killed
process, and may be removed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import platform
import secrets
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from resonax.core.errors import StoreError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None

__all__ = ["LONG", "clear", "locked", "temporary", "writing"]

_LOCK = ".resonax.lock"
_PREFIX = ".resonax-"
LONG = 24 * 3600  # seconds after which nobody still writes a single file


def lock(handle: int) -> bool | None:
    """Lock an open file for this process; return False if another has it, None if none can.

    A file system without locks, such as some network mounts, answers with an error of its own.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def same_file(path: Path, handle: int) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def temporary(parent: Path, suffix: str = "") -> Iterator[Path]:
    """Give a new file that is removed in the end, unless it was moved to its place."""
    while True:  # another process may find it before it is locked, and remove it
        path = parent / f"{_PREFIX}{_host()}-{secrets.token_hex(8)}{suffix}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if lock(handle) is not False and same_file(path, handle):
            break
        os.close(handle)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


def clear(folder: Path) -> None:
    """Remove the temporary files that killed processes left, and no others."""
    with contextlib.suppress(OSError):  # what cannot be removed does no harm
        for name in os.listdir(folder):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_abandoned(folder / name)


def _remove_abandoned(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        free = lock(handle)
        if free is False:
            return
        # Not every file system shows a lock to other machines.
        is_known = free is True and path.name.startswith(f"{_PREFIX}{_host()}-")
        if not is_known and time.time() - os.fstat(handle).st_mtime < LONG:
            return
        path.unlink()
    finally:
        os.close(handle)


@cache
def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        again = "and run the same command again; what was stored is kept"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            trouble = f"the disk of {path} is full: free some space {again}"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            trouble = f"{path} may not be written to: allow it, or choose another --out folder,"
            trouble += f" {again}"
        else:
            trouble = f"{path} could not be written ({error.strerror or error}): mend that {again}"
        raise StoreError(trouble) from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Hold a folder for this process; raise `StoreError` if another one holds it.

    The lock is the operating system's and ends with the process. It keeps two commands from mixing
    their figures, claims and reports; the numbers in a store do not rest on it. Gives the file that
    says who holds it, which is removed in the end.
    """
    path = folder / _LOCK
    with writing(folder):
        handle = _open(path)
    while lock(handle) is False or not same_file(path, handle):
        holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
        held = same_file(path, handle)
        os.close(handle)
        if held:
            raise StoreError(
                f"{folder} is being written by {holder or 'another process'}: wait until that ends "
                "or choose another --out folder"
            )
        with writing(folder):  # it was just given back: the file has gone with the lock
            handle = _open(path)
    try:
        with contextlib.suppress(OSError):  # a full disk: whoever holds it will say so
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield path
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that nobody holds a file without name
        os.close(handle)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
