"""Batches of JAX as a guard keeps them: any pytree of arrays with rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from resonax.core.errors import ArgumentError
from resonax.guards.learner import mixed_places
from resonax.jax.hyperparameters import Hyperparameters

__all__ = [
    "KeptBatch",
    "byte_size",
    "checked_like",
    "copied",
    "count_rows",
    "mean_row",
    "mix_rows",
    "stacked",
]


class KeptBatch(NamedTuple):
    """One call of `update`: the batch, and what else shaped the step.

    ``own`` are the user's hyperparameters at that step. A loss with random parts gets the key
    ``jax.random.fold_in(key, step)``.
    """

    data: Any
    key: Any
    step: int
    own: Hyperparameters


def copied(data: Any) -> Any:
    """Return a batch that stays as it is: NumPy arrays are copied, as loaders may fill one again.

    Arrays of jax are kept themselves.
    """

    def kept(leaf: Any) -> Any:
        return leaf if isinstance(leaf, jax.Array) else np.array(leaf)

    return jax.tree.map(kept, data)


def count_rows(data: Any) -> int:
    """Return the number of rows of a batch; `ArgumentError` if its arrays do not agree."""
    sizes = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(data)}
    if len(sizes) != 1 or sizes == {0}:
        raise ArgumentError(
            "the rows of this batch cannot be told apart: give a pytree of arrays that all have "
            "one row for each example"
        )
    return sizes.pop()


def checked_like(data: Any, before: Any) -> None:
    """Raise `ArgumentError` if rows cannot be mixed with those of an earlier batch."""
    shapes = [
        (jax.tree.structure(one), [np.shape(leaf)[1:] for leaf in jax.tree.leaves(one)])
        for one in (data, before)
    ]
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            "the rows of this batch have other shapes than those before, and cannot be mixed with "
            "them: pad them to one shape"
        )


def byte_size(tree: Any) -> int:
    """Return the bytes of the arrays of a pytree."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree))


def stacked(data: Sequence[Any]) -> Any:
    """Return batches of one shape as one pytree with a further first axis.

    Arrays in the memory of the host are stacked there, which needs no compiled program.
    """
    return jax.tree.map(lambda *leaves: _stack(leaves), *data)


def _stack(leaves: tuple[Any, ...]) -> Any:
    away = any(isinstance(leaf, jax.Array) and not _is_near(leaf) for leaf in leaves)
    return jnp.stack(leaves) if away else np.stack([np.asarray(leaf) for leaf in leaves])


def _is_near(leaf: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in leaf.devices())


def mix_rows(
    batches: Sequence[KeptBatch], rng: np.random.Generator, like: Sequence[KeptBatch] | None
) -> list[KeptBatch]:
    """Return the rows of batches in random order, with the sizes and context of ``like``.

    It is done on the host: a program for each number of batches would have to be compiled.
    """
    like = batches if like is None else like
    counts = [count_rows(one.data) for one in batches]
    pieces = mixed_places(counts, [count_rows(one.data) for one in like], rng)
    each = [jax.tree.leaves(one.data) for one in batches]
    columns = [
        np.concatenate([np.asarray(leaf) for leaf in one]) for one in zip(*each, strict=True)
    ]
    made = []
    for batch, piece in zip(like, pieces, strict=True):
        leaves, tree = jax.tree.flatten(batch.data)
        new = [_placed(column[piece], leaf) for column, leaf in zip(columns, leaves, strict=True)]
        made.append(batch._replace(data=tree.unflatten(new)))
    return made


def _placed(rows: np.ndarray, like: Any) -> Any:
    return jax.device_put(rows, like.sharding) if isinstance(like, jax.Array) else rows


def mean_row(data: Any) -> np.ndarray:
    """Return the mean row of all arrays of a batch."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data)]
    return np.concatenate([leaf.mean(axis=0, dtype=float).reshape(-1) for leaf in leaves])
