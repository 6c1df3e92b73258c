"""Datasets and loaders of torch as tables, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.core.errors import ArgumentError, DataError
from resonax.recordings.arrays import as_column, to_numpy
from resonax.recordings.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from torch.utils.data import DataLoader

__all__ = ["open_torch"]

_ROWS = 1024  # of a dataset that are read at a time
_ARRAYS = "X, y = (torch.cat(part).numpy() for part in zip(*{}))"


def open_torch(source: Any) -> Table | None:
    """Return the table of a dataset or a loader of torch; None for anything else.

    Each row of a dataset, and each batch of a loader, is of features, of features and a target, or
    a dictionary of columns. The rows of a loader come in its order, with its batch.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> loader = DataLoader(TensorDataset(torch.zeros(40, 2), torch.ones(40)), batch_size=8)
    >>> table = open_torch(loader)
    >>> table.columns, table.target, table.batch
    (('0', '1', 'target'), 'target', 8)
    """
    # A class of torch is known by its name: torch is imported only where somebody else has
    bases = type(source).__mro__
    kinds = {base.__name__ for base in bases if base.__module__.startswith("torch.")}
    if any(base.__name__ == "IterableDataset" for base in bases):  # those of datasets as well
        raise ArgumentError(
            "an IterableDataset may have no end: make arrays of some of its rows, "
            "X, y = (np.stack(part) for part in zip(*itertools.islice(dataset, 10_000))), and give "
            "X, y in its place"
        )
    if "DataLoader" in kinds:
        _check_loader(source)
        return _open(source.dataset, "loader", source)
    if "Dataset" not in kinds:
        return None
    return _open(source, "dataset", None)


def _check_loader(loader: DataLoader[Any]) -> None:
    """Raise `ArgumentError` unless each pass over a loader gives the same rows and ends."""
    from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

    audit = "or ask resonax.torch.audit(loader) what its order does"
    if isinstance(loader.dataset, IterableDataset):
        some = _ARRAYS.format("itertools.islice(loader, 1000)")
        raise ArgumentError(
            "a DataLoader of an IterableDataset may have no end: make arrays of some of its "
            f"batches, {some}, and give X, y and batch=loader.batch_size, {audit}"
        )
    if loader.batch_size is None or type(loader).__iter__ is not DataLoader.__iter__:
        raise ArgumentError(
            "this DataLoader makes its batches in its own way: make arrays of one pass, "
            f"{_ARRAYS.format('loader')}, and give X, y and batch=, {audit}"
        )
    if not isinstance(loader.sampler, SequentialSampler):
        raise ArgumentError(
            "this DataLoader shuffles, or has a sampler of its own, and one pass is one of its "
            f"orders: make arrays of it, {_ARRAYS.format('loader')}, and give X, y and "
            f"batch=loader.batch_size, {audit}"
        )


def _collate(samples: list[Any]) -> Any:
    """Return rows of a dataset as a batch."""
    from torch.utils.data import default_collate

    def with_arrays(sample: Any) -> Any:
        if not isinstance(sample, list | tuple):
            return sample
        # a list of features would be taken for that many parts of a row
        return tuple(np.asarray(part) if isinstance(part, list) else part for part in sample)

    try:
        return default_collate([with_arrays(sample) for sample in samples])
    except (KeyError, RuntimeError, TypeError, ValueError):
        raise DataError(
            "the rows of the dataset cannot be put together: each must hold as many numbers, and "
            "nan where one is missing"
        ) from None


def _open(dataset: Any, source: str, given: DataLoader[Any] | None) -> Table:
    """Return the table of a dataset, as a loader gives its rows."""
    import torch

    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        raise ArgumentError(
            f"the {source} does not say how many rows it has: give the dataset a method __len__"
        ) from None
    if not count:
        raise DataError(f"{source} has no rows of data: at least 2 are needed")
    # One of its own, in this process: the caller's, its workers and its generator stay as they are
    loader = torch.utils.data.DataLoader(
        dataset,
        _ROWS if given is None else given.batch_size,
        collate_fn=_collate if given is None else given.collate_fn,
        drop_last=given is not None and given.drop_last,
    )
    with torch.random.fork_rng(devices=[]):
        first, target = _frame_of(loader.collate_fn([dataset[0]]), source)
    names = tuple(str(name) for name in first.columns)

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        with torch.random.fork_rng(devices=[]):
            for part in loader:
                piece, _ = _frame_of(part, source)
                piece.columns = [str(name) for name in piece.columns]
                if set(piece.columns) != set(names):
                    raise DataError(f"each row of the {source} must have the same columns")
                yield piece[list(columns)]

    numbered = isinstance(next(iter(first.columns), None), int)
    batch = given.batch_size if given else None
    return Table(names, source, pieces, numbered=numbered, target=target, batch=batch)


def _frame_of(batch: Any, source: str) -> tuple[pd.DataFrame, str | None]:
    """Return a batch as a table, and the name of the column that is its target."""
    import pandas as pd

    if isinstance(batch, Mapping):
        return pd.DataFrame({key: as_column(str(key), part) for key, part in batch.items()}), None
    parts = list(batch) if isinstance(batch, list | tuple) else [batch]
    if not 1 <= len(parts) <= 2:
        raise ArgumentError(
            f"a row of the {source} must be features, or features and a target, got {len(parts)} "
            "parts: name the columns, by a dictionary"
        )
    inputs = to_numpy(parts[0], f"the {source}")
    if inputs.ndim not in (1, 2):
        shape = " x ".join(map(str, inputs.shape[1:]))
        raise DataError(
            f"a row of the {source} must be one axis of numbers, got {shape}: flatten it"
        )
    frame = pd.DataFrame(inputs.reshape(len(inputs), -1))
    if len(parts) == 1:
        return frame, None
    column = as_column("target", parts[1])
    if len(column) != len(frame):
        raise DataError(f"the {source} has {len(frame)} rows of features and {len(column)} targets")
    return frame.assign(target=column.array), "target"
