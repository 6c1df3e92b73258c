"""The files of a folder of this machine, with the methods that `Remote` has for a URL."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from resonax.core.errors import StoreError
from resonax.store.disk import LONG, clear, temporary, writing
from resonax.store.place import Place, Remote

if TYPE_CHECKING:
    from zarr.storage import LocalStore

__all__ = ["Folder", "LocalFolder", "folder_at"]


@dataclass(frozen=True)
class LocalFolder:
    """Files by their names below a folder, each whole or not there."""

    path: Path

    def prepare(self) -> None:
        """Make the folders above it, and remove what killed processes left in it."""
        with self.writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            clear(self.path.parent)
            clear(self.path)
        with contextlib.suppress(OSError):
            for half in self.path.glob("*/c*.partial"):  # of a chunk, as zarr calls it
                if time.time() - half.stat().st_mtime > LONG:
                    half.unlink(missing_ok=True)

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return what is in some files: those that are there."""
        found = {}
        with self.reading():
            for name in names:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    found[name] = (self.path / name).read_bytes()
        return found

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write some files."""
        with self.writing():
            for name, data in files.items():
                target = self.path / name
                target.parent.mkdir(exist_ok=True)
                # Beside the folder's other files, where `clear` finds it after a kill.
                with temporary(self.path) as fresh:
                    fresh.write_bytes(data)
                    fresh.replace(target)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it is there; return whether this call did, of any at once."""
        with self.writing():
            self.path.mkdir(exist_ok=True)
            with temporary(self.path) as fresh:
                fresh.write_bytes(data)
                try:
                    os.link(fresh, self.path / name)
                except FileExistsError:
                    return False
                except OSError:  # a file system without links
                    if (self.path / name).exists():
                        return False
                    fresh.replace(self.path / name)
        return True

    def names(self) -> list[str]:
        """Return the names of what is in it; none if it is not there."""
        with self.reading():
            try:
                return os.listdir(self.path)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def exists(self) -> bool:
        """Return whether there is a file, or anything in it."""
        return self.path.is_file() or bool(self.names())

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def zarr(self, *, read_only: bool) -> LocalStore:
        """Return zarr's store of it."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=read_only)

    def writing(self) -> AbstractContextManager[None]:
        """Turn an error of the disk while it is written to into a sentence."""
        return writing(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn an error of the disk while it is read into a sentence."""
        try:
            yield
        except OSError as error:
            why = error.strerror or error
            raise StoreError(f"{self.path} could not be read: {why}") from None


Folder = LocalFolder | Remote


def folder_at(place: Place) -> Folder:
    """Return the files at a place."""
    return place if isinstance(place, Remote) else LocalFolder(Path(place))
