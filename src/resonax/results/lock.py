"""One command at a time writes to a folder.

The lock is the operating system's: it ends with the process that holds it, however that ends. The
process number in the lock file is for people only. The numbers in a store do not rest on this lock
(see `resonax.results.store`): workers of one command, on this machine or on others, share a store
without it. It keeps two commands from mixing their figures, claims and reports.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from resonax.checks import StoreError
from resonax.results.disk import lock, same_file, writing

__all__ = ["locked"]

_NAME = ".resonax.lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Hold a folder for this process; raise `StoreError` if another one holds it.

    Gives the file that says so, which is removed in the end.
    """
    path = folder / _NAME
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
