"""Networks in memory, and the threads that train them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from resonax.lanes.compiled import load_program
from resonax.lanes.plan import Plan
from resonax.lanes.program import REAL, WHOLE, WORDS

__all__ = ["Fleet", "aligned_zeros"]

_LINE = 64  # bytes


class Fleet:
    """Networks (paths, cells) in training. The cells of a path share its random numbers.

    Parameters
    ----------
    plan
        What the program is written for.
    keys
        Of the random numbers, (paths, 2).
    weights, states, numbers
        Of each network, (paths, cells, ...): its weights; the states of its optimizer in the order
        of the plan; the numbers of its optimizer, the deviation of the noise and the factor of the
        slope.
    process
        Numbers and states of the process of each network, (paths, cells, ...), where the plan has
        one.
    threads
        How many share the work. No result depends on it.
    folder
        Where compiled programs are kept, if anywhere.
    """

    def __init__(
        self,
        plan: Plan,
        keys: np.ndarray,
        weights: np.ndarray,
        states: Sequence[np.ndarray],
        numbers: np.ndarray,
        process: np.ndarray | None = None,
        *,
        threads: int = 1,
        folder: Path | None = None,
    ) -> None:
        self._plan, self._threads = plan, threads
        self._paths, self.cells = weights.shape[:2]
        real = np.float64 if plan.double else np.float32
        wide = [s for s, (_, is_wide) in zip(states, plan.update.states, strict=True) if is_wide]
        words = [
            s for s, (_, is_wide) in zip(states, plan.update.states, strict=True) if not is_wide
        ]
        nothing = np.zeros((*weights.shape[:2], 0))
        blocks = -(-self._paths // plan.lanes)
        self._memory = {
            "weights": self._spread(weights, real),
            "states": self._spread(np.concatenate([nothing, *wide], axis=2), real),
            "numbers": self._spread(numbers, real),
            "process": self._spread(nothing if process is None else process, real),
            "total": aligned_zeros((blocks, self.cells, 1, plan.lanes), real),
            "keys": self._spread(keys[:, None], np.uint32),
            "scalars": self._spread(np.stack([*words], axis=2) if words else nothing, np.int32),
        }
        self._blocks = blocks
        self._program: Callable[..., None] = load_program(plan, folder)
        size = sum(plan.areas().values()) * plan.lanes
        self._scratch = [aligned_zeros((size,), real) for _ in range(threads)]

    def _spread(self, array: np.ndarray, kind: type) -> np.ndarray:
        """Return (paths, cells, n) as (blocks, cells, n, lanes), filled up with copies."""
        lanes = self._plan.lanes
        blocks = -(-len(array) // lanes)
        filled = array[np.minimum(np.arange(blocks * lanes), len(array) - 1)]
        split = np.moveaxis(filled.reshape(blocks, lanes, *array.shape[1:]), 1, -1)
        made = aligned_zeros(split.shape, kind)
        made[...] = split
        return made

    def _gather(self, name: str) -> np.ndarray:
        """Return (blocks, cells, n, lanes) as (paths, cells, n)."""
        whole = np.moveaxis(self._memory[name], -1, 1)
        return whole.reshape(-1, *whole.shape[2:])[: self._paths]

    @property
    def weights(self) -> np.ndarray:
        """The weights, (paths, cells, weights)."""
        return self._gather("weights")

    @property
    def total(self) -> np.ndarray:
        """Sums of the test losses of recorded steps, (paths, cells)."""
        return self._gather("total")[..., 0]

    def reset(self) -> Fleet:
        """Begin the sums of test losses anew; return the fleet."""
        self._memory["total"][...] = 0.0
        return self

    def advance(
        self, first: int, steps: int, law: np.ndarray | None, test_law: np.ndarray, *, record: bool
    ) -> None:
        """Take some steps, a multiple of 4.

        Parameters
        ----------
        first, steps
            Number of the first step, and how many.
        law
            Of the inputs, (blocks of lanes, steps or 1, cells or 1, numbers of a law, lanes); None
            where the plan has a process.
        test_law
            Of the test inputs, (blocks of lanes, cells or 1, numbers of a law, lanes).
        record
            Whether the test losses are summed up.
        """
        law = np.zeros((1, 1, 1, 0, self._plan.lanes)) if law is None else law
        law_block, law_step, law_cell = _moves(law)
        test_block, test_cell = _moves(test_law)
        whole = {
            "cells": self.cells,
            "first_step": first,
            "steps": steps,
            "record": int(record),
            "law_block": law_block,
            "law_step": law_step,
            "law_cell": law_cell,
            "test_block": test_block,
            "test_cell": test_cell,
        }
        memory = {**self._memory, "law": law, "test_law": test_law}
        blocks = iter(range(self._blocks))

        def work(scratch: np.ndarray) -> None:
            arrays = memory | {"scratch": scratch}
            places = [arrays[name].ctypes.data for name in (*REAL, *WORDS)]
            for block in blocks:  # the next one that no thread has taken
                given = whole | {"block": block}
                self._program(*(given[name] for name in WHOLE), *places)

        if self._threads == 1:
            return work(self._scratch[0])
        # A call lets go of the interpreter: threads work side by side.
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(work, self._scratch))
        return None


def _moves(laws: np.ndarray) -> list[int]:
    """Return how many numbers apart laws are along each axis; 0 along one that they all share."""
    axes = laws.ndim - 2
    assert laws[(0,) * axes].flags.c_contiguous  # one law: its numbers, each of all lanes
    apart = zip(laws.strides[:axes], laws.shape[:axes], strict=True)
    return [stride // laws.itemsize if count > 1 else 0 for stride, count in apart]


def aligned_zeros(shape: tuple[int, ...], kind: type) -> np.ndarray:
    """Return zeros that begin at a line of the cache, so that no vector lies across two."""
    size = math.prod(shape) * np.dtype(kind).itemsize
    raw = np.zeros(size + _LINE, np.uint8)
    first = -raw.ctypes.data % _LINE
    return raw[first : first + size].view(kind).reshape(shape)
