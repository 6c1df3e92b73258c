"""Files and folders that a person names: seen to be writable first, then written whole."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import overload

from resonax.checks import ArgumentError, StoreError
from resonax.results.disk import clear, temporary
from resonax.results.place import Place
from resonax.results.remote import Remote

__all__ = ["check_folder", "make_folder", "replacing"]


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
