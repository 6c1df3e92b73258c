"""Files and folders that a person names: seen to be writable first, written whole, and sealed.

A sealed file holds the SHA-256 of its own bytes, taken with zeros in the place of the digits. It
stays a JSON or netCDF file that any program reads, and any change to it is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.disk import clear, temporary
from resonax.store.place import Place, Remote

__all__ = ["UNSEALED", "check_folder", "is_whole", "make_folder", "replacing", "seal"]

UNSEALED = "0" * 64  # the value of "sha256" in a file that is about to be sealed
# As JSON has it, with a colon and quotes, or as netCDF has it, with the length of the text.
_SEAL = re.compile(rb"(?<![0-9A-Za-z_])(sha256[^0-9a-f]{1,16})([0-9a-f]{64})(?![0-9a-f])")


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


@overload
def make_folder(path: Path) -> Path: ...
@overload
def make_folder(path: Place) -> Place: ...
def make_folder(path: Place) -> Place:
    """Make a folder, with those above it, unless it is there; return its path.

    At a URL there are no folders to make.
    """
    if isinstance(path, Remote):
        return path
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"the folder {path} could not be made: {error.strerror}") from None
    return path


@contextlib.contextmanager
def replacing(path: str | Place) -> Iterator[Path]:
    """Give a temporary path beside a file, which becomes the file once all went well.

    An error or an interrupt leaves the old file, or none: never half of one. What goes to a URL is
    written on this machine first.
    """
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory() as folder:
            fresh = Path(folder) / path.name
            yield fresh
            path.parent.write({path.name: fresh.read_bytes()})
        return
    path = check_folder(path)
    clear(path.parent)  # what a killed process left
    try:
        with temporary(path.parent, path.suffix or ".tmp") as fresh:
            yield fresh
            fresh.replace(path)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
