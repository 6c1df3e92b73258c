"""Files and folders that a person names: checked first, written whole, sealed and locked.

A sealed file holds the SHA-256 of its own bytes, taken with zeros in the place of the digits. It
stays a JSON or netCDF file that any program reads, and any change to it is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from resonax.core.errors import ArgumentError, StoreError

__all__ = [
    "UNSEALED",
    "check_folder",
    "is_running",
    "is_whole",
    "locked",
    "read_sealed",
    "remove_leftovers",
    "seal",
    "sealed_json",
    "temporary",
]

UNSEALED = "0" * 64  # the value of "sha256" in a file that is about to be sealed
# As JSON has it, with a colon and quotes, or as netCDF has it, with the length of the text.
_SEAL = re.compile(rb"(?<![0-9A-Za-z_])(sha256[^0-9a-f]{1,16})([0-9a-f]{64})(?![0-9a-f])")
_LOCK = ".resonax.lock"
# Ours, with the machine and the process, or zarr's of a chunk.
_TEMPORARY = re.compile(r"\.resonax-([0-9a-f]+)-(\d+)-|c\.[.0-9a-f]+\.partial$")
_DAY = 24 * 3600  # seconds after which nobody still writes a single file


def seal(data: bytes) -> bytes:
    """Return a file with its checksum in the place of the first ``sha256`` that it holds.

    Examples
    --------
    >>> import json
    >>> data = seal(json.dumps({"sha256": UNSEALED, "rate": 0.25}).encode())
    >>> is_whole(data), is_whole(data.replace(b"0.25", b"0.75")), is_whole(data[:-1])
    (True, False, False)
    """
    digest = hashlib.sha256(data).hexdigest().encode()
    sealed, count = _SEAL.subn(lambda found: found[1] + digest, data, count=1)
    if not count or not is_whole(sealed):
        raise ValueError("there is no place for a checksum")
    return sealed


def is_whole(data: bytes) -> bool:
    """Return whether a file is as `seal` gave it, to the byte."""
    found = _SEAL.search(data)
    if found is None:
        return False
    plain = data[: found.start(2)] + UNSEALED.encode() + data[found.end(2) :]
    return hashlib.sha256(plain).hexdigest().encode() == found[2]


def sealed_json(table: Mapping[str, Any]) -> bytes:
    """Return a table as a sealed JSON file, equal for equal tables."""
    return seal(json.dumps({"sha256": UNSEALED, **table}).encode())


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """Return the table of a sealed JSON file, or None if it is damaged or no such file.

    Examples
    --------
    >>> data = sealed_json({"rate": 0.25})
    >>> read_sealed(data), read_sealed(data[:-1])
    ({'rate': 0.25}, None)
    """
    try:
        table = json.loads(data) if is_whole(data) else None
    except (RecursionError, ValueError):
        return None
    if not isinstance(table, dict):
        return None
    return {name: value for name, value in table.items() if name != "sha256"}


def check_folder(path: str | Path) -> Path:
    """Return a path to write to, after seeing that its folder is there and may be written."""
    path = Path(path)
    folder = path.parent
    try:
        if not folder.is_dir():
            raise ArgumentError(f"the folder of {path} does not exist: make it first")
        if path.is_dir():
            raise ArgumentError(f"{path} is a folder: name a file")
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise ArgumentError(f"the folder of {path} cannot be written to: choose another")
    return path


@contextlib.contextmanager
def temporary(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Give a new file that is removed in the end, unless it was moved to its place.

    Its name says who writes it: `remove_leftovers` removes it if that process was killed.
    """
    name = f".resonax-{_host()}-{os.getpid()}-{secrets.token_hex(8)}{suffix}"
    path = folder / name
    path.touch(exist_ok=False)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder, and no others.

    Of processes of other machines, and of what zarr was writing, only the age is known.
    """
    with contextlib.suppress(OSError):  # what cannot be removed does no harm
        for path in folder.iterdir():
            found = _TEMPORARY.match(path.name)
            if found is None:
                continue
            host, process = found.groups()
            ended = host == _host() and not is_running(int(process))
            if ended or time.time() - path.stat().st_mtime > _DAY:
                path.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Return whether there is a process with this number on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # that of another user
        return True
    return True


def _host() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Hold a folder for this process; raise `StoreError` if another one holds it.

    The lock is the operating system's and ends with the process. It keeps two commands from mixing
    their figures, claims and reports; the numbers in a store do not rest on it. Gives the file that
    says who holds it, which is removed in the end.
    """
    import filelock

    path = folder / _LOCK
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        holder = path.read_text("utf-8", "replace").strip() if path.exists() else ""
        raise StoreError(
            f"{folder} is being written by {holder or 'another process'}: wait until that ends "
            "or choose another --out folder"
        ) from None
    except OSError as error:
        raise StoreError(
            f"{folder} could not be locked ({error.strerror or error}): mend that or choose "
            "another --out folder"
        ) from error
    try:
        with contextlib.suppress(OSError):  # a full disk: what is written next will say so
            path.write_text(f"process {os.getpid()} on {platform.node()}\n", "utf-8")
        yield path
    finally:
        path.unlink(missing_ok=True)  # while it is held, so that nobody holds a file without name
        lock.release()
