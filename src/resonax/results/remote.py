"""A place that is no folder of this machine: its name, and its files, each whole or not there.

Written with fsspec and nothing else: the bytes of chunks, markers and metadata are made here, as
they are for a folder, so that a bucket holds the same objects as a folder has files. zarr's own
``FsspecStore`` and obstore would bring a second way to encode a chunk and to try again; whoever
reads a store may use either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from resonax.results import connection

__all__ = ["Remote"]


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
        found = connection.read([f"{self.url}/{name}" for name in names])
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write some files below this place, all at once."""
        connection.write({f"{self.url}/{name}": data for name, data in files.items()})

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it is there; return whether this call did, of any that try at once.

        A service without conditional writes may say so to two of them.
        """
        return connection.create(f"{self.url}/{name}", data)

    def names(self) -> list[str]:
        """Return the names of what is directly below this place, by one listing."""
        return connection.names(self.url)

    def exists(self) -> bool:
        """Return whether there is a file, or any file below it."""
        return bool(self.names())

    def remove(self) -> None:
        """Remove all files below this place."""
        connection.remove(self.url)
