"""Files with checksums, temporary files for atomic writes, and locks of folders.

A sealed file holds the SHA-256 of its own bytes, computed with zeros in place of the digest. It is
an ordinary JSON or netCDF file, and any change to it is detected.
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

UNSEALED = "0" * 64  # value of "sha256" in a file before `seal`
# In JSON colon and quotes lie between the name and the digest, in netCDF the length of the text.
_SEAL = re.compile(rb"(?<![0-9A-Za-z_])(sha256[^0-9a-f]{1,16})([0-9a-f]{64})(?![0-9a-f])")
_LOCK = ".resonax.lock"
# Temporary files of resonax, with the host and the process, or those of zarr for a chunk.
_TEMPORARY = re.compile(r"\.resonax-([0-9a-f]+)-(\d+)-|c\.[.0-9a-f]+\.partial$")
_MAX_AGE = 24 * 3600  # seconds after which a temporary file is left over


def seal(data: bytes) -> bytes:
    """Return the content of a file with its checksum as the value of its first ``sha256``.

    Examples
    --------
    >>> import json
    >>> data = seal(json.dumps({"sha256": UNSEALED, "rate": 0.25}).encode())
    >>> is_whole(data), is_whole(data.replace(b"0.25", b"0.75")), is_whole(data[:-1])
    (True, False, False)
    """
    digest = hashlib.sha256(data).hexdigest().encode()
    sealed, count = _SEAL.subn(lambda match: match[1] + digest, data, count=1)
    if not count or not is_whole(sealed):
        raise ValueError("there is no place for a checksum")
    return sealed


def is_whole(data: bytes) -> bool:
    """Return whether the checksum in the content of a file is right."""
    match = _SEAL.search(data)
    if match is None:
        return False
    unsealed = data[: match.start(2)] + UNSEALED.encode() + data[match.end(2) :]
    return hashlib.sha256(unsealed).hexdigest().encode() == match[2]


def sealed_json(table: Mapping[str, Any]) -> bytes:
    """Return the content of a sealed JSON file with a table; it may stand in a page as it is."""
    text = json.dumps({"sha256": UNSEALED, **table})
    for mark in "<>&":  # in JSON they lie in text alone
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return seal(text.encode())


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """Return the table of a sealed JSON file, or None if it is damaged or not sealed.

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
    """Return a path, after a check that its folder exists and is writable."""
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
    """Yield the path of a new file, which is removed afterwards unless it was renamed.

    Its name holds host and process, so that `remove_leftovers` finds it if the process was killed.
    """
    name = f".resonax-{_host()}-{os.getpid()}-{secrets.token_hex(8)}{suffix}"
    path = folder / name
    path.touch(exist_ok=False)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that killed processes left in a folder.

    Those of other machines and of zarr are removed if they are more than a day old.
    """
    with contextlib.suppress(OSError):  # leftovers do no harm
        for path in folder.iterdir():
            match = _TEMPORARY.match(path.name)
            if match is None:
                continue
            host, process = match.groups()
            has_ended = host == _host() and not is_running(int(process))
            if has_ended or time.time() - path.stat().st_mtime > _MAX_AGE:
                path.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Return whether there is a process with this number on this machine."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return True


def _host() -> str:
    """Return a short hash of the name of this machine."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Lock a folder for this process; raise `StoreError` if another process has locked it.

    The operating system releases the lock when the process ends. It keeps two commands from mixing
    their figures, claims and reports; stores do not need it. Yields the lock file, which names the
    process that holds it, and is removed afterwards.
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
        with contextlib.suppress(OSError):  # a full disk is reported by the next write
            path.write_text(f"process {os.getpid()} on {platform.node()}\n", "utf-8")
        yield path
    finally:
        path.unlink(missing_ok=True)  # before the release, so that nobody locks a removed file
        lock.release()
