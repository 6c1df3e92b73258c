"""Files that are on disk once they are written, and a sentence when they cannot be."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from resonax.checks import ArgumentError

__all__ = ["clear", "flush", "put", "writing"]

_TEMPORARY = ".writing-"


def put(folder: Path, name: str, data: bytes) -> None:
    """Write a file below a folder, whole or not at all, and wait until the disk has it.

    The file that is being written lies in the folder itself, where `clear` finds it after a kill.
    """
    temporary = folder / f"{_TEMPORARY}{os.getpid()}-{threading.get_ident()}"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def clear(folder: Path) -> None:
    """Remove the half-written files that a killed process left."""
    for name in os.listdir(folder):
        if name.startswith(_TEMPORARY):
            (folder / name).unlink()


def flush(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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
        raise ArgumentError(trouble) from error
