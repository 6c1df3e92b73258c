"""What a caller may give as an executor: one of ours, of `concurrent.futures`, or a Dask client."""

from __future__ import annotations

import concurrent.futures
from typing import TYPE_CHECKING

from resonax.core.errors import ArgumentError
from resonax.run.executor import Executor, Futures

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["as_executor"]


def as_executor(given: Executor | concurrent.futures.Executor | Client) -> Executor:
    """Return an executor of jobs that does them with what was given.

    Examples
    --------
    >>> with concurrent.futures.ThreadPoolExecutor(2) as pool:
    ...     as_executor(pool).workers
    2
    """
    if isinstance(given, concurrent.futures.Executor):
        return Futures(given, getattr(given, "_max_workers", 1))
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(given).__mro__}
    if "distributed.client.Client" in kinds:  # known by name: Dask is loaded only if it is used
        from resonax.run.dask import Dask

        return Dask(given)  # pyrefly: ignore[bad-argument-type]
    if isinstance(getattr(given, "workers", None), int) and callable(getattr(given, "run", None)):
        return given  # pyrefly: ignore[bad-return]
    raise ArgumentError(
        "executor must be one of concurrent.futures, a Dask Client, or have `workers` and `run`, "
        f"got {type(given).__name__}"
    )
