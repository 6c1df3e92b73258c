"""Where results are: a folder of this machine, or a place that fsspec reaches by its URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from resonax.core.errors import ArgumentError, shorten
from resonax.store import connection

if TYPE_CHECKING:
    from zarr.storage import FsspecStore

__all__ = ["Place", "Remote", "as_place"]


@dataclass(frozen=True)
class Remote:
    """A URL with the methods of a path that results need; it can be sent to other processes."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    @property
    def kind(self) -> str:
        """The protocol, such as ``s3``."""
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else Remote(above)

    @property
    def suffix(self) -> str:
        """The ending of its name, with the dot."""
        return PurePosixPath(self.name).suffix

    def with_suffix(self, suffix: str) -> Remote:
        """Return it with another ending."""
        return self.parent / str(PurePosixPath(self.name).with_suffix(suffix))

    def check_kind(self) -> None:
        """Raise `ArgumentError` unless the library for this kind of URL is there."""
        connection.find_class(self.kind, self.url)

    def reach(self) -> None:
        """See that the place answers, within seconds; `StoreError` says why it does not."""
        connection.reach(self.url)

    def read_bytes(self) -> bytes:
        """Return what is in a file; `FileNotFoundError` if it is not there."""
        found = self.parent.read([self.name])
        if self.name not in found:
            raise FileNotFoundError(self.url)
        return found[self.name]

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return what is in some files below this place: those that are there, all at once."""
        names = list(names)
        found = connection.read(self.url, names)
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write some files below this place, all at once."""
        connection.write(self.url, files)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it is there; return whether this call did, of any that try at once.

        A service without conditional writes may say so to two of them.
        """
        return connection.create(self.url, name, data)

    def names(self) -> list[str]:
        """Return the names of what is directly below this place, by one listing."""
        return connection.names(self.url)

    def zarr(self, *, read_only: bool) -> FsspecStore:
        """Return zarr's store at this place."""
        return connection.zarr_at(self.url, read_only=read_only)

    def reading(self) -> AbstractContextManager[None]:
        """Turn an error of the service into a sentence that says what to do."""
        return connection.talking(self.url)

    writing = reading

    def exists(self) -> bool:
        """Return whether there is a file, or any file below it."""
        return bool(self.names())

    def remove(self) -> None:
        """Remove all files below this place."""
        connection.remove(self.url)


Place = Path | Remote
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)


def as_place(where: str | Place) -> Place:
    """Return the folder or the URL that a person names; ``file://`` is a folder.

    Examples
    --------
    >>> as_place("out"), as_place("file:///data/out")
    (PosixPath('out'), PosixPath('/data/out'))
    >>> str(as_place("memory://runs/") / "results" / "mine.zarr")
    'memory://runs/results/mine.zarr'
    """
    if isinstance(where, Path | Remote):
        return where
    if not isinstance(where, str):
        raise ArgumentError(f"a path or a URL is needed, got {shorten(where)}")
    found = _URL.fullmatch(where)
    if found is None:
        return Path(where)
    kind, path = found[1].lower(), found[2]
    if kind in ("file", "local"):
        return Path(path or "/")
    if not path.strip("/"):
        raise ArgumentError(f"{shorten(where)} names no bucket: write {kind}://BUCKET/FOLDER")
    place = Remote(f"{kind}://{path.rstrip('/')}")
    place.check_kind()
    return place
