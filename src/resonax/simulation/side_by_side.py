"""Loops that are compiled side by side where a GPU runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax

__all__ = ["current_device", "map_side_by_side"]

T = TypeVar("T")
R = TypeVar("R")


def current_device() -> Any:
    """Return the device on which jax computes now."""
    chosen = jax.config.jax_default_device  # pyrefly: ignore[missing-attribute]
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]


def map_side_by_side(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return what a function gives for each item, in threads if it computes on a GPU.

    One loop is compiled, or loaded, on a core while another is, or runs on the GPU. On a CPU they
    would take each other's cores: there it is one after the other.

    Examples
    --------
    >>> map_side_by_side(abs, [-1, 2])
    [1, 2]
    """
    device = current_device()
    if device.platform == "cpu" or len(items) < 2:
        return [function(item) for item in items]

    def compute(item: T) -> R:
        with jax.default_device(device):  # each thread has its own
            return function(item)

    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(compute, items))
