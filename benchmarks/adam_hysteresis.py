"""Does Adam remember where it began? Fig. 4c where theory has two stable levels.

That is at beta1 0.99 and periods of 76 and 77. Runs begin on the upper and on the lower of the two
levels: errors are normal with the rms of the level, and Adam's second moment has the value that
belongs to it. Printed is the rms over the runs of either group in the thousand steps that end after
so many thousands; beside them a period below and one above, with one level each.

Run: PYTHONPATH=src python benchmarks/adam_hysteresis.py [--noise 0.01]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax import Problem, Switching, adam, level
from resonax.theory.level import Branch

PERIODS = (70, 76, 77, 84)
WINDOW, WINDOWS, SHOWN = 1000, 30, (0, 1, 2, 4, 9, 19, 29)


def train(problem: Problem, start: Branch, runs: int, seed: int) -> np.ndarray:
    """Return the mean square of the error in each window, (windows, runs), from a level."""
    optimizer = problem.optimizer.transform()
    weights = problem.size

    def run(key: Any) -> Any:
        begin, walk, draw, noise_key = jax.random.split(key, 4)
        error = start.rms / np.sqrt(weights) * jax.random.normal(begin, (weights,))
        state = optax.tree.set(optimizer.init(error), nu=jnp.array(start.square), count=10**6)

        def step(carry: Any, index: Any) -> tuple[tuple, Any]:
            error, state, place = carry
            place, law = problem.process.draw_step(jax.random.fold_in(walk, index), place, index)
            (row,) = problem.model.apply(law.sample(jax.random.fold_in(draw, index), (1,)))  # pyrefly: ignore[missing-attribute]
            noise = jax.random.normal(jax.random.fold_in(noise_key, index))
            residual = row @ error - jnp.sqrt(problem.noise) * noise
            moves, state = optimizer.update(2 * residual * row, state, error)
            error = error + moves
            return (error, state, place), jnp.sum(error**2)

        def window(carry: tuple, number: Any) -> tuple[tuple, Any]:
            carry, squares = jax.lax.scan(step, carry, number * WINDOW + jnp.arange(WINDOW))
            return carry, squares.mean()

        place = problem.process.draw_init(jax.random.fold_in(walk, WINDOW * WINDOWS))
        return jax.lax.scan(window, (error, state, place), jnp.arange(WINDOWS))[1]

    keys = jax.random.split(jax.random.key(seed), runs)
    return np.asarray(jax.jit(jax.vmap(run, out_axes=1))(keys), dtype=float)


def main() -> None:
    """Print the rms of both groups over time, at each period."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--noise", type=float, default=0.1)
    options.add_argument("--runs", type=int, default=200)
    given = options.parse_args()
    stream = Switching(period=76.0, amplitude=1.0, variance=0.1, dim=5)
    problem = Problem(stream, adam(0.01, beta1=0.99), noise=given.noise)
    found = {
        period: level(replace(problem, process=replace(stream, period=float(period)))).branches
        for period in PERIODS
    }
    two = next(branches for branches in found.values() if len(branches) > 1)
    print("after thousands of steps      ", *(f"{place + 1:7d}" for place in SHOWN))
    for period, branches in found.items():
        words = ", ".join(
            f"{one.rms:.2f}{'' if one.is_stable else ' (unstable)'}" for one in branches
        )
        print(f"T {period}: predicted rms {words}")
        here = replace(problem, process=replace(stream, period=float(period)))
        ends = branches if len(branches) > 1 else two
        for name, start, seed in (("upper", ends[0], 1), ("lower", ends[-1], 2)):
            squares = train(here, start, given.runs, seed)[list(SHOWN)]
            rms = np.sqrt(squares.mean(axis=1))
            error = squares.std(axis=1, ddof=1) / np.sqrt(given.runs) / (2 * rms)
            text = " ".join(f"{value:7.3f}" for value in rms)
            print(f"  from the {name}, rms {start.rms:5.2f}   {text}  (last +- {error[-1]:.3f})")


if __name__ == "__main__":
    main()
