"""The state of a learner: arrays and numbers found in the objects of a library."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

__all__ = ["WEIGHTS", "Leaf", "Leaves", "walk_object"]

WEIGHTS = "weights"  # the kind of the numbers that predictions are made of
_AVERAGE_NAME = re.compile("^_?(avg|average)")
_PLAIN = frozenset({int, str, bool, bytes, type(None)})  # most parts, and none has weights


class Leaf(NamedTuple):
    """Some numbers of one kind, and how to change them."""

    kind: str
    values: np.ndarray  # (n,)
    write: Callable[[np.ndarray], None]
    eps: float = float(np.finfo(float).eps)


class Leaves(ABC):
    """A learner whose state is a list of leaves, found anew each time: libraries replace them."""

    @abstractmethod
    def leaves(self) -> list[Leaf]:
        """Return the leaves as they are now."""

    def state(self) -> np.ndarray:
        return np.concatenate([np.zeros(0), *(leaf.values for leaf in self.leaves())])

    def load(self, vector: np.ndarray) -> None:
        end = 0
        for leaf in self.leaves():
            begin, end = end, end + len(leaf.values)
            leaf.write(vector[begin:end])

    def kinds(self) -> np.ndarray:
        leaves = self.leaves()
        names = [WEIGHTS, *sorted({leaf.kind for leaf in leaves} - {WEIGHTS})]
        each = [np.full(len(leaf.values), names.index(leaf.kind)) for leaf in leaves]
        return np.concatenate([np.zeros(0, int), *each])

    def eps(self) -> float:
        return max(leaf.eps for leaf in self.leaves() if leaf.kind == WEIGHTS)

    def fresh(self) -> Any:
        return copy.deepcopy(self)  # of all parts at once: an optimizer follows to the copy


def _array_leaf(name: str, array: np.ndarray) -> Leaf:
    def write(values: np.ndarray) -> None:
        array[...] = values.reshape(array.shape)  # in place: other objects may hold it too

    return Leaf(name, array.ravel().astype(float), write, float(np.finfo(array.dtype).eps))


def _dict_leaf(name: str, mapping: Any, keys: list[Any]) -> Leaf:
    def write(values: np.ndarray) -> None:
        for key, number in zip(keys, values.tolist(), strict=True):
            mapping[key] = number

    return Leaf(name, np.array([mapping[key] for key in keys], dtype=float), write)


@functools.cache
def _settings(kind: type) -> frozenset[str]:
    """Return what a class is configured with, which learning does not change."""
    return frozenset(inspect.signature(kind).parameters)


@functools.cache
def _is_average(name: str) -> bool:
    return _AVERAGE_NAME.match(name) is not None


@functools.cache
def _is_of_library(kind: type) -> bool:
    return not {base.__module__.split(".")[0] for base in kind.__mro__}.isdisjoint(
        ("river", "sklearn")
    )


def _walk(thing: Any, name: str, seen: set[int]) -> Iterator[Leaf]:
    """Find the floating-point arrays and dicts of numbers in a thing and in its parts."""
    if type(thing) in _PLAIN or id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        if thing.dtype.kind == "f":
            yield _array_leaf(name, thing)
    elif isinstance(thing, list | tuple):
        for part in thing:
            yield from _walk(part, name, seen)
    elif hasattr(thing, "items") and hasattr(thing, "__setitem__"):  # dict, river's VectorDict
        parts = dict(thing.items())
        yield _dict_leaf(name, thing, [key for key in parts if isinstance(parts[key], float)])
        for part in parts.values():
            if not isinstance(part, float):
                yield from _walk(part, name, seen)
    elif _is_of_library(type(thing)):
        yield from walk_object(thing, seen)


def walk_object(thing: Any, seen: set[int]) -> Iterator[Leaf]:
    """Find the numbers that learning changes in the attributes of a model and of its parts."""
    parts = getattr(thing, "__dict__", {})
    # Where scikit-learn averages, these are the averages, and it learns with others.
    shown = ("coef_", "intercept_") if "_standard_coef" in parts else ()
    for key, part in parts.items():
        # An average follows the weights and never acts on them. A difference in it fades like
        # 1/step, at rate 0, behind which the rate of the weights could not be seen.
        if key in shown or _is_average(key):
            continue
        if not isinstance(part, float):
            yield from _walk(part, key, seen)
        elif key not in _settings(type(thing)) and not key.endswith("_"):  # such are statistics
            yield _dict_leaf(key, parts, [key])
