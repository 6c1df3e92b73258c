"""The files of a store, in a folder of this machine or at a URL: what a store asks of either."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from resonax.checks import StoreError
from resonax.results.disk import clear, flush, flush_tree, put, temporary, writing
from resonax.results.place import Place
from resonax.results.remote import Remote

__all__ = ["ROOT", "Folder", "folder_at"]

ROOT = "zarr.json"  # the file that makes a folder a store


class Folder(Protocol):
    """Files by their names below a place, each whole or not there."""

    def prepare(self) -> bool:
        """See that the place can be used; return whether nothing is there yet."""
        ...

    def create(self, files: Mapping[str, bytes]) -> bool:
        """Write the files of an empty store, unless another was faster; return whether it did."""
        ...

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return what is in some files: those that are there."""
        ...

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write some files, and wait until they are safe."""
        ...

    def names(self, inner: str) -> list[str]:
        """Return the names in a folder below, by one listing; none if it is not there."""
        ...

    def remove(self) -> None:
        """Remove the whole store."""
        ...


class _Local:
    """A folder of this machine: built beside its place, and moved there in one step."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self) -> bool:
        path = self._path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            clear(path.parent)  # what a killed process left
            clear(path)
            return not path.exists() or (path.is_dir() and not any(path.iterdir()))

    def create(self, files: Mapping[str, bytes]) -> bool:
        parent = self._path.parent
        with writing(self._path), temporary(parent, folder=True) as fresh:
            for name, data in files.items():
                (fresh / name).parent.mkdir(exist_ok=True)
                (fresh / name).write_bytes(data)
            flush_tree(fresh)
            try:
                os.rename(fresh, self._path)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
            flush(parent)
            return True

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        found = {}
        for name in names:
            try:
                found[name] = (self._path / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise StoreError(f"{self._path} could not be read: {error.strerror}") from None
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        with writing(self._path):
            for name, data in files.items():
                (self._path / name).parent.mkdir(exist_ok=True)
                put(self._path, name, data)
                try:
                    flush((self._path / name).parent)
                except OSError:  # it may not be there after a crash
                    (self._path / name).unlink(missing_ok=True)
                    raise

    def names(self, inner: str) -> list[str]:
        try:
            return os.listdir(self._path / inner)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self._path} could not be read: {error.strerror}") from None

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)


class _Distant:
    """Files at a URL, where nothing can be moved in one step.

    The first file of a store says all that the others hold, and one process alone can create it.
    The rest follows from it: whoever opens the store with the same specification writes what is
    missing, and another is refused.
    """

    def __init__(self, place: Remote) -> None:
        self._place = place

    def prepare(self) -> bool:
        return not self._place.names()

    def create(self, files: Mapping[str, bytes]) -> bool:
        if not self._place.create(ROOT, files[ROOT]):
            return False
        self._place.write({name: data for name, data in files.items() if name != ROOT})
        return True

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        return self._place.read(names)

    def write(self, files: Mapping[str, bytes]) -> None:
        self._place.write(files)

    def names(self, inner: str) -> list[str]:
        return (self._place / inner).names()

    def remove(self) -> None:
        self._place.remove()


def folder_at(place: Place) -> Folder:
    """Return the files at a place."""
    return _Distant(place) if isinstance(place, Remote) else _Local(Path(place))
