"""Arrays, tensors and columns of any library as NumPy arrays and pandas columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.core.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_column", "to_numpy"]


def to_numpy(values: Any, name: str) -> np.ndarray:
    """Return values as an array; `DataError` if they make none, with the name of what holds them.

    Examples
    --------
    >>> to_numpy([[1, 2], [3, 4]], "the array").shape
    (2, 2)
    """
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(float), np.nan)  # else what is masked would count
    try:
        if isinstance(values, list | tuple) and values and _is_tensor(values[0]):
            values = [_detached(one) for one in values]
        array = np.asarray(_detached(values) if _is_tensor(values) else values)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{name} must have rows of equal length") from None
    if array.dtype.kind == "V" and array.dtype.fields is None:  # bfloat16, of jax
        array = array.astype(np.float32)
    return array


def _is_tensor(values: Any) -> bool:
    return hasattr(values, "detach") and hasattr(values, "numpy")  # of torch


def _detached(tensor: Any) -> np.ndarray:
    """Return a tensor without its gradient, from any device, of any layout."""
    tensor = tensor.to_dense()
    try:
        return tensor.numpy(force=True)
    except TypeError:  # bfloat16, which NumPy does not have
        return tensor.float().numpy(force=True)


def as_column(name: str, values: Any) -> pd.Series:
    """Return one column of values, given as an array, a tensor, a series or a table of one column.

    Its values may be of any kind, as those of a column of a file.

    Examples
    --------
    >>> as_column("target", [[1.5], [2.5]]).tolist()
    [1.5, 2.5]
    """
    import pandas as pd

    if hasattr(values, "to_pandas"):  # polars, pyarrow
        values = values.to_pandas()
    if not hasattr(values, "iloc"):
        values = to_numpy(values, name)
    if values.ndim != 1 and values.shape[1:] != (1,):
        raise ArgumentError(f"{name} must be one column of numbers, got {values.ndim} axes")
    if hasattr(values, "iloc"):
        return values.iloc[:, 0] if values.ndim == 2 else values
    column: Any = values.reshape(-1)
    return pd.Series(column, name=name)
