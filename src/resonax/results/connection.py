"""Calls to a place that fsspec reaches: several at once, tried again, and refused in a sentence.

What may pass, such as an overloaded service or a network that stalls, is tried again with longer
and longer pauses: a few seconds when a command begins, a minute when results are at stake. The
libraries below are told not to try again by themselves, or each attempt would be several.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache, partial
from typing import Any

from resonax.checks import ArgumentError, StoreError

__all__ = ["create", "find_class", "names", "reach", "read", "remove", "write"]

AT_FIRST, LATER = 8.0, 60.0  # seconds after which a place that does not answer is given up
_ANSWER = 20.0  # seconds that a single call may take
_AT_ONCE = 16  # calls
_FINAL = (errno.EINVAL, errno.EPERM, errno.ENOSYS, errno.ENAMETOOLONG, errno.EROFS)
_PASSING = {"HTTPClientError", "ConnectionError", "ResponseParserError", "ClientError"}
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


def _options(kind: str) -> dict[str, Any]:
    """Return how a file system is made: listings as they are now, one attempt for each call."""
    from fsspec.config import conf

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if kind in ("s3", "s3a"):
        own = conf.get(kind, {}).get("config_kwargs", {})
        waits = {"connect_timeout": 5, "read_timeout": _ANSWER, "retries": {"max_attempts": 0}}
        # With more than one part at once, s3fs would ask for the size of each file first.
        options |= {"config_kwargs": {**waits, **own}, "max_concurrency": 1}
    return options


@cache
def _connect(kind: str, process: int) -> tuple[Any, int]:
    """Return a file system with coroutines, and how many calls it takes at once.

    ``process`` is this one's number: a connection must not be shared with a copy of the process.
    """
    del process
    made = find_class(kind, f"{kind}://")
    import fsspec

    try:
        system = fsspec.filesystem(kind, **_options(kind))
    except Exception as error:  # whatever it lacks: a host, a project, a key
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        sentence = f"{kind}:// could not be used ({why}): choose another --out, or say that in"
        raise StoreError(f"{sentence} ~/.config/fsspec/*.json") from error
    if made.async_impl:
        system.retries = 1
        return system, _AT_ONCE
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    return AsyncFileSystemWrapper(system, asynchronous=False), 1  # it may not be safe in threads


def _system(url: str) -> tuple[Any, int]:
    return _connect(url.partition("://")[0], os.getpid())


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, FileNotFoundError | FileExistsError | PermissionError):
        return False
    if isinstance(error, NotADirectoryError | IsADirectoryError | NotImplementedError):
        return False
    if isinstance(error, OSError):
        return getattr(error, "errno", None) not in _FINAL
    names = {kind.__name__ for kind in type(error).__mro__}
    return type(error).__module__.startswith(_FOREIGN) and bool(names & _PASSING)


async def _persist(call: Callable[[], Coroutine[Any, Any, Any]], until: float) -> Any:
    """Return what a call gives, tried again until a moment if its error may pass."""
    import asyncio

    pause = 0.05
    while True:
        try:
            left = max(until - time.monotonic(), 1.0)
            return await asyncio.wait_for(call(), min(left, 2 * _ANSWER))
        except Exception as error:
            if not _may_pass(error) or time.monotonic() + pause > until:
                raise
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, 5.0)


async def _all(
    calls: Sequence[Callable[[], Coroutine[Any, Any, Any]]],
    at_once: int,
    patience: float,
    missing: bool,
) -> list[Any]:
    """Return what calls give, in order; ``missing``: None for a file that is not there."""
    import asyncio

    gate, until = asyncio.Semaphore(at_once), time.monotonic() + patience

    async def one(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async with gate:
            try:
                return await _persist(call, until)
            except FileNotFoundError as error:
                if missing and not _lacks_bucket(error):
                    return None
                raise

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _run(
    url: str,
    method: str,
    given: Sequence[tuple[Any, ...]],
    *,
    missing: bool = False,
    patience: float | None = None,
    **named: Any,
) -> list[Any]:
    """Call a method of a file system for each of the given arguments, several at once."""
    from fsspec.asyn import sync

    system, at_once = _system(url)
    calls = [partial(getattr(system, method), *arguments, **named) for arguments in given]
    patience = LATER if patience is None else patience
    try:
        return sync(system.loop, _all, calls, at_once, patience, missing) or []
    except (FileExistsError, NotImplementedError):
        raise
    except Exception as error:
        if (sentence := _sentence(url, error)) is None:
            raise
        raise StoreError(sentence) from error


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether a service says that it has no such bucket, not only no such file."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") == "NoSuchBucket"


def _sentence(url: str, error: Exception) -> str | None:
    """Return what to say of an error of a service, or None if it is a defect of ours."""
    kind, _, rest = url.partition("://")
    bucket, name = f"{kind}://{rest.partition('/')[0]}", type(error).__name__
    if isinstance(error, FileNotFoundError):
        return f"{bucket} does not exist: make it first, or choose another --out"
    if "Credential" in name or "Token" in name or name == "ProfileNotFound":
        return f"{bucket} needs credentials and none were found: set those of {kind} {_KEPT}"
    if isinstance(error, PermissionError):
        why = str(error).strip().rstrip(".") or "access denied"
        return f"{bucket} may not be used ({why}): allow it, or choose another --out, {_KEPT}"
    if _may_pass(error):
        why = " ".join(str(error).split()).rstrip(".") or name
        return f"{bucket} does not answer as it should ({why}): mend that {_KEPT}"
    if isinstance(error, OSError) or type(error).__module__.startswith(_FOREIGN):
        why = " ".join(str(error).split()).rstrip(".") or name
        return f"{url} could not be used ({why}): choose another --out, or mend that {_KEPT}"
    return None


def reach(url: str) -> None:
    """See that a place answers; `StoreError` says why it does not."""
    _run(url, "_cat_file", [(f"{url}/.resonax",)], missing=True, patience=AT_FIRST)


def read(urls: Sequence[str]) -> list[bytes | None]:
    """Return what is in some files, None for those that are not there."""
    return _run(urls[0], "_cat_file", [(url,) for url in urls], missing=True) if urls else []


def write(files: Mapping[str, bytes]) -> None:
    """Write some files, each whole or not at all."""
    if files:
        try:
            _run(next(iter(files)), "_pipe_file", list(files.items()))
        except NotImplementedError:
            url = next(iter(files))
            raise StoreError(f"{url} cannot be written to: choose another --out") from None


def create(url: str, data: bytes) -> bool:
    """Write a file unless it is there; return whether it was written."""
    try:
        _run(url, "_pipe_file", [(url, data)], mode="create")
    except FileExistsError:
        return False
    except (NotImplementedError, StoreError) as error:
        cause = error.__cause__
        is_lacking = isinstance(error, NotImplementedError)
        if not is_lacking and getattr(cause, "errno", None) != errno.ENOSYS:
            raise
        if read([url])[0] is not None:
            return False
        write({url: data})
    return True


def names(url: str) -> list[str]:
    """Return the names of what is directly in a folder, none if it is not there."""
    found = _run(url, "_ls", [(url,)], missing=True, detail=False)[0] or []
    return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def remove(url: str) -> None:
    """Remove all files of a folder."""
    with contextlib.suppress(StoreError, NotImplementedError):  # what is left does no harm
        _run(url, "_rm", [(url,)], missing=True, recursive=True)
