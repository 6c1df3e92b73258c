"""Files of results in a folder, or in a bucket or another file system that fsspec knows by URL.

Temporary failures, such as an overloaded service or a stalled network, are retried with exponential
backoff by fsspec's libraries. Other failures become a `StoreError` of one sentence.
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
    "Location",
    "Remote",
    "as_location",
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

_FIRST_ANSWER = 8.0  # seconds that a service has for its first answer
_S3_CONFIG = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "retries": {"mode": "standard", "max_attempts": 4},  # s3fs repeats all of them up to 5 times
}
_SERVICE_MODULES = (
    "botocore.",
    "aiobotocore.",
    "aiohttp.",
    "fsspec.",
    "gcsfs.",
    "adlfs.",
    "azure.",
)
_RUN_AGAIN = "and run the same command again; what was stored is kept"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)


@dataclass(frozen=True)
class Remote:
    """A URL with some methods of `pathlib.Path`; it can be pickled."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    @property
    def kind(self) -> str:
        """Protocol, such as ``s3``."""
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        """URL of the folder that contains it."""
        above = self.url.rpartition("/")[0]
        return self if above.endswith("/") else Remote(above)

    @property
    def suffix(self) -> str:
        """File extension, with the dot."""
        return PurePosixPath(self.name).suffix

    def with_suffix(self, suffix: str) -> Remote:
        """Return the URL with another file extension."""
        return self.parent / str(PurePosixPath(self.name).with_suffix(suffix))

    def read_bytes(self) -> bytes:
        """Return the contents of a file, or raise `FileNotFoundError`."""
        found = read_files(self.parent, [self.name])
        if self.name not in found:
            raise FileNotFoundError(self.url)
        return found[self.name]

    def exists(self) -> bool:
        """Return whether there is a file at this URL, or any file below it."""
        return bool(file_names(self))


Location = Path | Remote


def as_location(where: str | Location) -> Location:
    """Return a path or URL as a `Location`; ``file://`` URLs become paths.

    Examples
    --------
    >>> as_location("out"), as_location("file:///data/out")
    (PosixPath('out'), PosixPath('/data/out'))
    >>> str(as_location("memory://runs/") / "results" / "mine.zarr")
    'memory://runs/results/mine.zarr'
    """
    if isinstance(where, Path | Remote):
        return where
    if not isinstance(where, str):
        raise ArgumentError(f"a path or a URL is needed, got {shorten(where)}")
    match = _URL.fullmatch(where)
    if match is None:
        return Path(where)
    kind, path = match[1].lower(), match[2]
    if kind in ("file", "local"):
        return Path(path or "/")
    if not path.strip("/"):
        raise ArgumentError(f"{shorten(where)} names no bucket: write {kind}://BUCKET/FOLDER")
    location = Remote(f"{kind}://{path.rstrip('/')}")
    _check_library(location)
    return location


def _check_library(location: Remote) -> None:
    """Raise `ArgumentError` unless the library for this protocol is installed."""
    url, kind = location.url, location.kind
    try:
        import fsspec
    except ImportError:
        raise ArgumentError(f"{url} needs fsspec: pip install 'resonax[cluster]'") from None
    try:
        fsspec.get_filesystem_class(kind)
    except ValueError:
        advice = "name a folder, or a URL such as s3://BUCKET/FOLDER"
        raise ArgumentError(f"{url} is no location that fsspec knows: {advice}") from None
    except ImportError as error:
        is_s3 = kind in ("s3", "s3a")
        advice = "pip install 'resonax[cluster]'" if is_s3 else str(error).rstrip(".")
        raise ArgumentError(f"{url} needs a library that is not installed: {advice}") from None


def _options(location: Remote) -> dict[str, Any]:
    """Return the options of fsspec: no cached listings, and for S3 timeouts and retries."""
    from fsspec.config import conf

    options: dict[str, Any] = {"use_listings_cache": False}
    if location.kind in ("s3", "s3a"):
        user_config = conf.get(location.kind, {}).get("config_kwargs", {})
        # With a higher concurrency s3fs first requests the size of each file.
        options |= {"config_kwargs": {**_S3_CONFIG, **user_config}, "max_concurrency": 1}
    return options


def _file_system(location: Remote) -> tuple[Any, str]:
    """Return the file system of a URL, which fsspec caches in each process, and the path in it."""
    from fsspec.core import url_to_fs

    try:
        return url_to_fs(location.url, **_options(location))
    except Exception as error:  # libraries raise many kinds: a missing host, project, key
        reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise StoreError(
            f"{location.kind}:// could not be used ({reason}): choose another --out, or say that "
            "in ~/.config/fsspec/*.json"
        ) from error


def zarr_store(location: Location) -> StoreLike:
    """Return a zarr store at a location."""
    from zarr.storage import FsspecStore, LocalStore

    if isinstance(location, Path):
        return LocalStore(location)
    return FsspecStore.from_url(location.url, storage_options=_options(location))


@contextlib.contextmanager
def describe_errors(location: Location) -> Iterator[None]:
    """Raise errors of the disk or of a service as a `StoreError` that says what to do."""
    try:
        yield
    except (FileExistsError, NotImplementedError, StoreError):
        raise
    except Exception as error:
        if isinstance(location, Remote):
            message = _service_message(location, error)
        else:
            message = _disk_message(location, error) if isinstance(error, OSError) else None
        if message is None:
            raise
        raise StoreError(message) from error


def _disk_message(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk of {path} is full: free some space {_RUN_AGAIN}"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = error.strerror or error
        advice = f"allow it, or choose another --out folder, {_RUN_AGAIN}"
        return f"{path} may not be used ({reason}): {advice}"
    return f"{path} could not be used ({error.strerror or error}): mend that {_RUN_AGAIN}"


def _service_message(location: Remote, error: Exception) -> str | None:
    """Return a message for an error of a service, or None if the error is a bug in resonax."""
    kind, name = location.kind, type(error).__name__
    bucket = f"{kind}://{location.url.partition('://')[2].partition('/')[0]}"
    reason = " ".join(str(error).split()).rstrip(".") or name
    if isinstance(error, FileNotFoundError):
        return f"{bucket} does not exist: make it first, or choose another --out"
    if "Credential" in name or "Token" in name or name == "ProfileNotFound":
        return f"{bucket} needs credentials and none were found: set those of {kind} {_RUN_AGAIN}"
    if isinstance(error, PermissionError):
        return (
            f"{bucket} may not be used ({reason}): allow it, or choose another --out, {_RUN_AGAIN}"
        )
    if isinstance(error, OSError) or type(error).__module__.startswith(_SERVICE_MODULES):
        return f"{bucket} does not answer as it should ({reason}): mend that {_RUN_AGAIN}"
    return None


def check_reachable(location: Remote) -> None:
    """Raise `StoreError` unless a service answers within seconds."""
    answer: Future[bytes] = Future()

    def ask() -> None:
        try:
            system, path = _file_system(location / ".resonax")
            answer.set_result(system.cat_file(path))
        except Exception as error:
            answer.set_exception(error)

    # In a daemon thread, so that the command can end while the library waits and retries.
    threading.Thread(target=ask, daemon=True).start()
    with describe_errors(location):
        try:
            answer.result(_FIRST_ANSWER)
        except FileNotFoundError as error:
            if _lacks_bucket(error):
                raise


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether the bucket is missing, not only a file in it."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") == "NoSuchBucket"


def read_files(location: Location, names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of those of the named files that exist below a location."""
    found: dict[str, bytes] = {}
    names = list(names)
    with describe_errors(location):
        if isinstance(location, Path):
            for name in names:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    found[name] = (location / name).read_bytes()
        elif names:
            system, path = _file_system(location)
            paths = [f"{path}/{name}" for name in names]
            parts = system.cat_ranges(paths, None, None, on_error="return")  # in parallel
            for name, part in zip(names, parts, strict=True):
                if not isinstance(part, Exception):
                    found[name] = part
                elif not isinstance(part, FileNotFoundError) or _lacks_bucket(part):
                    raise part
    return found


def write_files(location: Location, files: Mapping[str, bytes]) -> None:
    """Write files below a location, each atomically."""
    with describe_errors(location):
        if isinstance(location, Path):
            for name, data in files.items():
                target = location / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with temporary(target.parent) as temporary_path:
                    temporary_path.write_bytes(data)
                    temporary_path.replace(target)
            return
        system, path = _file_system(location)
        try:
            system.pipe({f"{path}/{name}": data for name, data in files.items()})
        except NotImplementedError:
            raise StoreError(f"{location} cannot be written to: choose another --out") from None


def create_file(location: Location, name: str, data: bytes) -> bool:
    """Write a file unless it exists; return whether this call created it.

    Of several concurrent calls one returns True. On a service without conditional writes more than
    one may.
    """
    with describe_errors(location), contextlib.suppress(NotImplementedError):
        try:
            if isinstance(location, Path):
                location.mkdir(parents=True, exist_ok=True)
                with temporary(location) as temporary_path:
                    temporary_path.write_bytes(data)
                    os.link(temporary_path, location / name)
            else:
                system, path = _file_system(location / name)
                system.pipe_file(path, data, mode="create")
            return True
        except FileExistsError:
            return False
        except OSError as error:  # neither links nor conditional writes
            if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
                raise
    if name in read_files(location, [name]):
        return False
    write_files(location, {name: data})
    return True


def file_names(location: Location) -> list[str]:
    """Return the names of the files and folders directly below a location, which may not exist."""
    with describe_errors(location):
        try:
            if isinstance(location, Path):
                return os.listdir(location)
            system, path = _file_system(location)
            found = system.ls(path, detail=False)
        except (FileNotFoundError, NotADirectoryError) as error:
            if _lacks_bucket(error):
                raise
            return []
    return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def remove(location: Location) -> None:
    """Remove all files below a location, as far as possible."""
    if isinstance(location, Path):
        shutil.rmtree(location, ignore_errors=True)
        return
    with contextlib.suppress(StoreError, NotImplementedError), describe_errors(location):
        system, path = _file_system(location)
        system.rm(path, recursive=True)


@overload
def make_folder(path: Path) -> Path: ...
@overload
def make_folder(path: Location) -> Location: ...
def make_folder(path: Location) -> Location:
    """Make a folder and its parents if necessary, and return it; URLs need none."""
    if isinstance(path, Path):
        with describe_errors(path):
            path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def replacing(path: str | Location) -> Iterator[Path]:
    """Yield a temporary path, which atomically replaces a file at the end of the context.

    After an error or an interrupt the old file, if any, is unchanged. For a URL the temporary file
    is on this machine, and uploaded at the end.
    """
    if isinstance(path, Remote):
        with tempfile.TemporaryDirectory() as folder:
            temporary_path = Path(folder) / path.name
            yield temporary_path
            write_files(path.parent, {path.name: temporary_path.read_bytes()})
        return
    path = check_folder(path)
    remove_leftovers(path.parent)  # of killed processes
    try:
        with temporary(path.parent, path.suffix or ".tmp") as temporary_path:
            yield temporary_path
            temporary_path.replace(path)
    except OSError as error:
        raise StoreError(f"{path} could not be written: {error.strerror or error}") from error
