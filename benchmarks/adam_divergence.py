"""Adam on held rows without noise: where the error grows, predicted and simulated.

The prediction is `resonax.theory.far_field`; the simulation is Adam in NumPy, from an error far
larger than its steps, in runs of 100 periods.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from resonax import Linear, Problem, Recorded, adam
from resonax.theory.far_field import Escape, find_escape

EXAMPLE = np.array([[3.0, -1, -1], [-1, 3, -1], [-1, -1, 3]])
CYCLES, STARTS = 100, 4
RATIOS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # 1/(1 - beta2) over the period


def predict(rows: np.ndarray, hold: int, beta1: float, beta2: float) -> Escape | None:
    """Return where an error grows far away, per step and in units of the step size."""
    law = Recorded.of(np.repeat(rows, hold, axis=0), repeat=True)
    return find_escape(Problem(law, adam(1.0, beta1, beta2), Linear(bias=False)))


def simulate(
    sets: np.ndarray, towards: np.ndarray, hold: int, beta1: float, beta2: float, far: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return whether errors of sets of rows, (sets, rows, size), grow, and by how much per step.

    Runs begin in the directions (starts, sets, size), `far` periods of steps away. An error grows
    if it is larger at the end than at the start and in the middle; the fastest start is returned.
    """
    rows = sets.shape[1]
    period = hold * rows
    error = far * period * towards / np.linalg.norm(towards, axis=2, keepdims=True)
    mean, square = np.zeros_like(error), np.zeros_like(error)
    lengths = [np.linalg.norm(error, axis=2)]
    for step in range(CYCLES * period):
        row = sets[:, step // hold % rows]
        gradient = 2 * np.sum(row * error, axis=2, keepdims=True) * row
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        corrected = np.sqrt(square / (1 - beta2 ** (step + 1))) + 1e-8
        error = error - mean / (1 - beta1 ** (step + 1)) / corrected
        if (step + 1) % period == 0:
            lengths.append(np.linalg.norm(error, axis=2))
    first, middle, last = lengths[0], lengths[CYCLES // 2], lengths[-1]
    growth = (last - middle) / (CYCLES // 2 * period)
    return ((last > first) & (last > middle)).any(axis=0), growth.max(axis=0)


class Counted(NamedTuple):
    """Of some sets of rows, those in which an error grows, and the fastest growth per step."""

    by_theory: int
    simulated: int
    both: int
    predicted: float
    growth: float


def count_growing(
    sets: np.ndarray, hold: int, beta1: float, ratio: float, far: float = 20.0
) -> Counted:
    """Return in how many sets an error grows if v remembers `ratio` periods."""
    count, rows, size = sets.shape
    beta2 = 1 - 1 / (ratio * hold * rows)
    towards = np.random.default_rng(1).normal(size=(STARTS, count, size))
    escapes = [predict(one, hold, beta1, beta2) for one in sets]
    for place, found in enumerate(escapes):  # the first start is the direction that theory names
        if found is not None:
            towards[0, place] = found.direction
    escape = np.array([found is not None for found in escapes])
    grows, growth = simulate(sets, towards, hold, beta1, beta2, far)
    predicted = max((found.growth for found in escapes if found), default=0.0)
    both = int(np.sum(escape & grows))
    return Counted(int(np.sum(escape)), int(np.sum(grows)), both, predicted, float(growth.max()))


def tabulate(name: str, sets: np.ndarray, hold: int, beta1: float, far: float = 20.0) -> None:
    """Print in how many sets an error grows at each memory, and where simulation disagrees."""
    for ratio in RATIOS:
        if ratio * hold * sets.shape[1] <= 1:
            continue
        found = count_growing(sets, hold, beta1, ratio, far)
        print(
            f"{name:18} hold {hold:3} beta1 {beta1:3} memory {ratio:4} periods: "
            f"of {len(sets)} sets {found.by_theory:2} grow by theory, {found.simulated:2} in "
            f"simulation, {found.both:2} in both; fastest {found.predicted:.4f} and "
            f"{found.growth:.4f}",
            flush=True,
        )


def main() -> None:
    """Print the tables of docs/adam-divergence.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    sets = parser.parse_args().sets
    rng = np.random.default_rng(0)
    for beta1 in (0.0, 0.9):
        for hold in (10, 100):
            tabulate("the example", EXAMPLE[None], hold, beta1)
        for rows, size in ((3, 3), (5, 5)):
            tabulate(f"{rows} x {size} normal", rng.normal(size=(sets, rows, size)), 10, beta1)
        gaps = np.array([0.5, 0.2, 0.1, 0.05, 0.02, 0.01])
        near = np.array([(3 + gap) * np.eye(3) - 1 for gap in gaps])
        tabulate("(2 + gap, -1, -1)", near, 10, beta1, far=1e4)


if __name__ == "__main__":
    main()
