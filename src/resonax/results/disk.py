"""Files that are whole or not there, temporary files that no kill leaves for ever, and sentences.

A temporary file or folder has a name of its own and is locked by the process that writes it. The
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
import shutil
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from resonax.checks import StoreError

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None

__all__ = [
    "checksum",
    "clear",
    "flush",
    "flush_tree",
    "lock",
    "put",
    "same_file",
    "temporary",
    "writing",
]

_PREFIX = ".resonax-"
_LONG = 24 * 3600  # seconds after which nobody still writes a single file


def checksum(data: bytes) -> str:
    """Return the CRC-32C of some bytes, as zarr's codec computes it.

    Examples
    --------
    >>> checksum(b"123456789")  # the check value of the standard
    'e3069283'
    """
    import google_crc32c

    return f"{google_crc32c.value(data):08x}"


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
def temporary(parent: Path, suffix: str = "", *, folder: bool = False) -> Iterator[Path]:
    """Give a new file or folder that is removed in the end, unless it was moved to its place."""
    while True:  # another process may find it before it is locked, and remove it
        path = parent / f"{_PREFIX}{_host()}-{secrets.token_hex(8)}{suffix}"
        if folder:
            path.mkdir()
            try:
                handle = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
        else:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        if lock(handle) is not False and same_file(path, handle):
            break
        os.close(handle)
    try:
        yield path
    finally:
        if folder:
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        os.close(handle)


def put(folder: Path, name: str, data: bytes) -> None:
    """Write a file below a folder, whole or not at all, and wait until the disk has it.

    The file that is being written lies in the folder itself, where `clear` finds it after a kill.
    """
    with temporary(folder) as path:
        with open(path, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path, folder / name)


def clear(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes left, and no others."""
    with contextlib.suppress(OSError):  # what cannot be removed does no harm
        for name in os.listdir(folder):
            if name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_abandoned(folder / name)


def _remove_abandoned(path: Path) -> None:
    is_folder = path.is_dir()
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        free = lock(handle)
        if free is False:
            return
        # Not every file system shows a lock to other machines.
        is_known = free is True and path.name.startswith(f"{_PREFIX}{_host()}-")
        if not is_known and time.time() - os.fstat(handle).st_mtime < _LONG:
            return
        if is_folder:
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(handle)


@cache
def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """Wait until the disk has all files and names below a folder."""
    for place, _, files in os.walk(folder):
        for entry in [*files, "."]:
            flush(Path(place) / entry)


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
