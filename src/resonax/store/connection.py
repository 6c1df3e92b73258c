"""Files at a place that fsspec reaches, and errors of its service in one sentence.

What may pass, such as an overloaded service or a network that stalls, is tried again by the
libraries below, with longer and longer pauses.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, StoreError

if TYPE_CHECKING:
    from zarr.storage import FsspecStore

__all__ = [
    "create",
    "find_class",
    "names",
    "reach",
    "read",
    "remove",
    "talking",
    "write",
    "zarr_at",
]

AT_FIRST = 8.0  # seconds after which a place that does not answer is given up, before any work
_WAITS = {
    "connect_timeout": 5,
    "read_timeout": 20,
    "retries": {"mode": "standard", "max_attempts": 4},  # each of which s3fs makes again, 5 times
}
_PASSING = {"HTTPClientError", "ConnectionError", "ResponseParserError", "ClientError"}
_FINAL = (errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EROFS)
_FOREIGN = ("botocore.", "aiobotocore.", "aiohttp.", "fsspec.", "gcsfs.", "adlfs.", "azure.")
_KEPT = "and run the same command again; what was stored is kept"


def find_class(kind: str, url: str) -> Any:
    """Return fsspec's class for a kind of URL, or say what to install."""
    try:
        import fsspec
    except ImportError:
        raise ArgumentError(f"{url} needs fsspec: pip install 'resonax[cluster]'") from None
    try:
        return fsspec.get_filesystem_class(kind)
    except ValueError:
        known = "a folder, or a URL such as s3://BUCKET/FOLDER"
        raise ArgumentError(f"{url} is no place that fsspec knows: name {known}") from None
    except ImportError as error:
        package = "resonax[cluster]" if kind in ("s3", "s3a") else str(error).rstrip(".")
        how = f"pip install '{package}'" if kind in ("s3", "s3a") else package
        raise ArgumentError(f"{url} needs a library that is not installed: {how}") from None


def _options(url: str) -> dict[str, Any]:
    """Return how a file system is made: listings as they are now, and how long it is waited for."""
    from fsspec.config import conf

    kind = url.partition("://")[0]
    options: dict[str, Any] = {"use_listings_cache": False}
    if kind in ("s3", "s3a"):
        own = conf.get(kind, {}).get("config_kwargs", {})
        # With more than one part at once, s3fs would ask for the size of each file first.
        options |= {"config_kwargs": {**_WAITS, **own}, "max_concurrency": 1}
    return options


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, one for each process, and the path in it."""
    from fsspec.core import url_to_fs

    find_class(url.partition("://")[0], url)
    try:
        return url_to_fs(url, **_options(url))
    except Exception as error:  # whatever it lacks: a host, a project, a key
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        kind = url.partition("://")[0]
        sentence = f"{kind}:// could not be used ({why}): choose another --out, or say that in"
        raise StoreError(f"{sentence} ~/.config/fsspec/*.json") from error


def zarr_at(url: str, *, read_only: bool) -> FsspecStore:
    """Return zarr's store at a URL."""
    from zarr.storage import FsspecStore

    return FsspecStore.from_url(url, storage_options=_options(url), read_only=read_only)


@contextlib.contextmanager
def talking(url: str) -> Iterator[None]:
    """Turn an error of a service into a sentence that says what to do."""
    try:
        yield
    except (FileExistsError, NotImplementedError, StoreError):
        raise
    except Exception as error:
        if (sentence := _sentence(url, error)) is None:
            raise
        raise StoreError(sentence) from error


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return False
    if isinstance(error, OSError):
        return getattr(error, "errno", None) not in _FINAL
    names = {kind.__name__ for kind in type(error).__mro__}
    return type(error).__module__.startswith(_FOREIGN) and bool(names & _PASSING)


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether a service says that it has no such bucket, not only no such file."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") == "NoSuchBucket"


def _sentence(url: str, error: Exception) -> str | None:
    """Return what to say of an error of a service, or None if it is a defect of ours."""
    kind, _, rest = url.partition("://")
    bucket, name = f"{kind}://{rest.partition('/')[0]}", type(error).__name__
    why = " ".join(str(error).split()).rstrip(".") or name
    if isinstance(error, FileNotFoundError):
        return f"{bucket} does not exist: make it first, or choose another --out"
    if "Credential" in name or "Token" in name or name == "ProfileNotFound":
        return f"{bucket} needs credentials and none were found: set those of {kind} {_KEPT}"
    if isinstance(error, PermissionError):
        return f"{bucket} may not be used ({why}): allow it, or choose another --out, {_KEPT}"
    if _may_pass(error):
        return f"{bucket} does not answer as it should ({why}): mend that {_KEPT}"
    if isinstance(error, OSError) or type(error).__module__.startswith(_FOREIGN):
        return f"{url} could not be used ({why}): choose another --out, or mend that {_KEPT}"
    return None


def reach(url: str) -> None:
    """See that a place answers within seconds; `StoreError` says why it does not."""
    with talking(url):
        system, path = _system(f"{url}/.resonax")
        try:
            if system.async_impl:
                from fsspec.asyn import sync

                sync(system.loop, system._cat_file, path, timeout=AT_FIRST)
            else:
                system.cat_file(path)
        except FileNotFoundError as error:
            if _lacks_bucket(error):
                raise


def read(url: str, names: Sequence[str]) -> list[bytes | None]:
    """Return what is in some files below a place, all at once; None for those that are not there.

    Parameters
    ----------
    url
        The place.
    names
        The files below it.
    """
    if not names:
        return []
    with talking(url):
        system, path = _system(url)
        paths = [f"{path}/{name}" for name in names]
        found = system.cat_ranges(paths, None, None, on_error="return")
        for data in found:
            is_missing = isinstance(data, FileNotFoundError) and not _lacks_bucket(data)
            if isinstance(data, Exception) and not is_missing:
                raise data
    return [None if isinstance(data, Exception) else data for data in found]


def write(url: str, files: Mapping[str, bytes]) -> None:
    """Write some files below a place, all at once, each whole or not at all."""
    with talking(url):
        system, path = _system(url)
        try:
            system.pipe({f"{path}/{name}": data for name, data in files.items()})
        except NotImplementedError:
            raise StoreError(f"{url} cannot be written to: choose another --out") from None


def create(url: str, name: str, data: bytes) -> bool:
    """Write a file unless it is there; return whether it was written."""
    with talking(url):
        system, path = _system(f"{url}/{name}")
        try:
            system.pipe_file(path, data, mode="create")
            return True
        except FileExistsError:
            return False
        except NotImplementedError:
            pass  # a service without conditional writes
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
    if read(url, [name])[0] is not None:
        return False
    write(url, {name: data})
    return True


def names(url: str) -> list[str]:
    """Return the names of what is directly in a folder, none if it is not there."""
    with talking(url):
        system, path = _system(url)
        try:
            found = system.ls(path, detail=False)
        except FileNotFoundError as error:
            if _lacks_bucket(error):
                raise
            found = []
    return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def remove(url: str) -> None:
    """Remove all files of a folder."""
    # What is left does no harm.
    with contextlib.suppress(StoreError, NotImplementedError), talking(url):
        system, path = _system(url)
        system.rm(path, recursive=True)
