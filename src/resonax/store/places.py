"""Where results are: a folder of this machine, or a place that fsspec reaches by its URL.

What may pass, such as an overloaded service or a network that stalls, is tried again by the
libraries below, with longer and longer pauses; what does not becomes one sentence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, overload

from resonax.core.errors import ArgumentError, StoreError, shorten
from resonax.store.files import check_folder, remove_leftovers, temporary

if TYPE_CHECKING:
    from zarr.storage import StoreLike

__all__ = [
    "Place",
    "Remote",
    "as_place",
    "check_reachable",
    "create_file",
    "describe_errors",
    "file_names",
    "make_folder",
    "read_files",
    "remove",
    "replacing",
    "write_files",
    "zarr_store",
]

_FIRST_ANSWER = 8.0  # seconds after which a place that does not answer is given up, at the start
_TIMEOUTS = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "retries": {"mode": "standard", "max_attempts": 4},  # each of which s3fs makes again, 5 times
}
_FOREIGN = ("botocore.", "aiobotocore.", "aiohttp.", "fsspec.", "gcsfs.", "adlfs.", "azure.")
_AGAIN = "and run the same command again; what was stored is kept"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)


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

    def read_bytes(self) -> bytes:
        """Return what is in a file; `FileNotFoundError` if it is not there."""
        found = read_files(self.parent, [self.name])
        if self.name not in found:
            raise FileNotFoundError(self.url)
        return found[self.name]

    def exists(self) -> bool:
        """Return whether there is a file, or any file below it."""
        return bool(file_names(self))


Place = Path | Remote


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
    _check_library(place)
    return place


def _check_library(place: Remote) -> None:
    """Raise `ArgumentError` unless the library for this kind of URL is there."""
    url, kind = place.url, place.kind
    try:
        import fsspec
    except ImportError:
        raise ArgumentError(f"{url} needs fsspec: pip install 'resonax[cluster]'") from None
    try:
        fsspec.get_filesystem_class(kind)
    except ValueError:
        known = "a folder, or a URL such as s3://BUCKET/FOLDER"
        raise ArgumentError(f"{url} is no place that fsspec knows: name {known}") from None
    except ImportError as error:
        s3 = kind in ("s3", "s3a")
        how = "pip install 'resonax[cluster]'" if s3 else str(error).rstrip(".")
        raise ArgumentError(f"{url} needs a library that is not installed: {how}") from None


def _options(place: Remote) -> dict[str, Any]:
    """Return how a file system is made: listings as they are now, and how long it is waited for."""
    from fsspec.config import conf

    options: dict[str, Any] = {"use_listings_cache": False}
    if place.kind in ("s3", "s3a"):
        own = conf.get(place.kind, {}).get("config_kwargs", {})
        # With more than one part at once, s3fs would ask for the size of each file first.
        options |= {"config_kwargs": {**_TIMEOUTS, **own}, "max_concurrency": 1}
    return options


def _file_system(place: Remote) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, one for each process, and the path in it."""
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(place.url, **_options(place))
    except Exception as error:  # whatever it lacks: a host, a project, a key
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise StoreError(
            f"{place.kind}:// could not be used ({why}): choose another --out, or say that in "
            "~/.config/fsspec/*.json"
        ) from error


def zarr_store(place: Place) -> StoreLike:
    """Return zarr's store at a place."""
    from zarr.storage import FsspecStore, LocalStore

    if isinstance(place, Path):
        return LocalStore(place)
    return FsspecStore.from_url(place.url, storage_options=_options(place))


@contextlib.contextmanager
def describe_errors(place: Place) -> Iterator[None]:
    """Turn an error of the disk or of a service into a sentence that says what to do."""
    try:
        yield
    except (FileExistsError, NotImplementedError, StoreError):
        raise
    except Exception as error:
        if isinstance(place, Remote):
            sentence = _service_sentence(place, error)
        else:
            sentence = _disk_sentence(place, error) if isinstance(error, OSError) else None
        if sentence is None:
            raise
        raise StoreError(sentence) from error


def _disk_sentence(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full: free some space {_AGAIN}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        why = error.strerror or error
        return f"{path} may not be used ({why}): allow it, or choose another --out folder, {_AGAIN}"
    return f"{path} could not be used ({error.strerror or error}): mend that {_AGAIN}"


def _service_sentence(place: Remote, error: Exception) -> str | None:
    """Return what to say of an error of a service, or None if it is a defect of ours."""
    kind, name = place.kind, type(error).__name__
    bucket = f"{kind}://{place.url.partition('://')[2].partition('/')[0]}"
    why = " ".join(str(error).split()).rstrip(".") or name
    if isinstance(error, FileNotFoundError):
        return f"{bucket} does not exist: make it first, or choose another --out"
    if "Credential" in name or "Token" in name or name == "ProfileNotFound":
        return f"{bucket} needs credentials and none were found: set those of {kind} {_AGAIN}"
    if isinstance(error, PermissionError):
        return f"{bucket} may not be used ({why}): allow it, or choose another --out, {_AGAIN}"
    if isinstance(error, OSError) or type(error).__module__.startswith(_FOREIGN):
        return f"{bucket} does not answer as it should ({why}): mend that {_AGAIN}"
    return None


def check_reachable(place: Remote) -> None:
    """See that a service answers within seconds; `StoreError` says why it does not."""
    answer: Future[bytes] = Future()

    def ask() -> None:
        try:
            system, path = _file_system(place / ".resonax")
            answer.set_result(system.cat_file(path))
        except Exception as error:
            answer.set_exception(error)

    # A daemon: while it waits, and tries again, the command can end.
    threading.Thread(target=ask, daemon=True).start()
    with describe_errors(place):
        try:
            answer.result(_FIRST_ANSWER)
        except FileNotFoundError as error:
            if _lacks_bucket(error):
                raise


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether a service says that it has no such bucket, not only no such file."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") == "NoSuchBucket"


def read_files(place: Place, names: Iterable[str]) -> dict[str, bytes]:
    """Return what is in some files below a place: those that are there."""
    found: dict[str, bytes] = {}
    names = list(names)
    with describe_errors(place):
        if isinstance(place, Path):
            for name in names:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    found[name] = (place / name).read_bytes()
        elif names:
            system, path = _file_system(place)
            paths = [f"{path}/{name}" for name in names]
            parts = system.cat_ranges(paths, None, None, on_error="return")  # all at once
            for name, part in zip(names, parts, strict=True):
                if not isinstance(part, Exception):
                    found[name] = part
                elif not isinstance(part, FileNotFoundError) or _lacks_bucket(part):
                    raise part
    return found


def write_files(place: Place, files: Mapping[str, bytes]) -> None:
    """Write some files below a place, each whole or not at all."""
    with describe_errors(place):
        if isinstance(place, Path):
            for name, data in files.items():
                target = place / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with temporary(target.parent) as fresh:
                    fresh.write_bytes(data)
                    fresh.replace(target)
            return
        system, path = _file_system(place)
        try:
            system.pipe({f"{path}/{name}": data for name, data in files.items()})
        except NotImplementedError:
            raise StoreError(f"{place} cannot be written to: choose another --out") from None


def create_file(place: Place, name: str, data: bytes) -> bool:
    """Write a file unless it is there; return whether this call did, of any that try at once.

    A service without conditional writes may say so to two of them.
    """
    with describe_errors(place), contextlib.suppress(NotImplementedError):
        try:
            if isinstance(place, Path):
                place.mkdir(parents=True, exist_ok=True)
                with temporary(place) as fresh:
                    fresh.write_bytes(data)
                    os.link(fresh, place / name)
            else:
                system, path = _file_system(place / name)
                system.pipe_file(path, data, mode="create")
            return True
        except FileExistsError:
            return False
        except OSError as error:  # a file system without links, a service without conditions
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
    if name in read_files(place, [name]):
        return False
    write_files(place, {name: data})
    return True


def file_names(place: Place) -> list[str]:
    """Return the names of what is directly below a place, by one listing; none if nothing is."""
    with describe_errors(place):
        try:
            if isinstance(place, Path):
                return os.listdir(place)
            system, path = _file_system(place)
            found = system.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError) as error:
            if _lacks_bucket(error):
                raise
            return []
    return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def remove(place: Place) -> None:
    """Remove all files below a place; what cannot be removed does no harm."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.suppress(StoreError, NotImplementedError), describe_errors(place):
        system, path = _file_system(place)
        system.rm(path, recursive=True)


@overload
def make_folder(path: Path) -> Path: ...
@overload
def make_folder(path: Place) -> Place: ...
def make_folder(path: Place) -> Place:
    """Make a folder, with those above it, unless it is there; return its path.

    At a URL there are no folders to make.
    """
    if isinstance(path, Path):
        with describe_errors(path):
            path.mkdir(parents=True, exist_ok=True)
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
            write_files(path.parent, {path.name: fresh.read_bytes()})
        return
    path = check_folder(path)
    remove_leftovers(path.parent)  # what a killed process left
    try:
        with temporary(path.parent, path.suffix or ".tmp") as fresh:
            yield fresh
            fresh.replace(path)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
