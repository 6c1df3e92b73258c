"""Compute what takes minutes of the paper's numbers, and store it: ``python paper/measure.py``.

``runs.json`` holds the level of Adam, simulated and predicted, on the stream of Fig. 4c of the
paper that resonax follows; the sets of rows that drive Adam away where each row is held; and the
orders found of 600 recorded rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import numpy as np
from adam_divergence import count_growing
from vega_datasets import data

import resonax as rx
from resonax.theory.level import levels

RUNS = Path(__file__).with_name("runs.json")
STREAM = {"amplitude": 1.0, "variance": 0.1, "dim": 5}
LR, NOISE = 0.01, 0.1
BETA1 = (0.9, 0.93, 0.95, 0.97, 0.98, 0.99)
PERIODS = tuple(np.unique(np.geomspace(2, 100, 16).round().astype(int)).tolist())
LENGTH = {"runs": 10, "steps": 10_000, "window": 2000}
ROWS = 600
SHORT, LONG = 0.1, 3.0  # 1 / (1 - beta2), in periods of the rows
GAPS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def training_by_adam(beta1: float = 0.95, period: float = 20.0) -> rx.Training:
    """Return the learner of Fig. 4c."""
    stream = rx.Switching(period=period, **STREAM)
    optimizer = rx.adam(lr=LR, beta1=beta1)
    return rx.Training(stream, optimizer, noise=NOISE, start=0.25, start_law="normal")


def temperatures() -> np.ndarray:
    """Return the first hourly temperatures of San Francisco in 2010 (NOAA)."""
    return np.asarray(data.sf_temps().temp)[: ROWS + 1]


def measure_level() -> dict[str, Any]:
    """Return mean distances from the best weights over the runs, (beta1, period)."""
    beta1, period = (axis.ravel() for axis in np.meshgrid(BETA1, PERIODS, indexing="ij"))
    cells = {"beta1": beta1, "period": period.astype(float)}
    training = training_by_adam()
    distance = np.exp(rx.simulate(training, cells, **LENGTH).log_response[:, 0])
    found = {
        "simulated": distance.mean(-1),
        "error": distance.std(-1, ddof=1) / np.sqrt(LENGTH["runs"]),
        "predicted": levels(rx.Problem.of(training), cells),
    }
    shape = len(BETA1), len(PERIODS)
    tables = {name: np.round(each.reshape(shape), 5).tolist() for name, each in found.items()}
    return {"beta1": BETA1, "period": PERIODS, **LENGTH, **tables}


def measure_sets() -> dict[str, Any]:
    """Return how many sets of rows, each held for 10 steps, drive Adam away.

    The sets near (2, -1, -1) and its turns hardly see the direction (1, 1, 1).
    """
    normal = np.random.default_rng(0).normal(size=(40, 5, 5))
    near = np.array([(3 + gap) * np.eye(3) - 1 for gap in GAPS])
    return {
        "sets": len(normal),
        "size": normal.shape[1],
        "short_memory": SHORT,
        "short": count_growing(normal, 10, 0.9, SHORT)._asdict(),
        "long_memory": LONG,
        "long": count_growing(normal, 10, 0.9, LONG)._asdict(),
        "gaps": len(GAPS),
        "near": count_growing(near, 10, 0.9, LONG, far=1e4)._asdict(),
    }


def measure_order() -> dict[str, Any]:
    """Return growth per step in orders of recorded rows, and the bounds of the largest."""
    hourly = temperatures()
    settings = {"lr": 0.01, "momentum": 0.9}
    found = rx.order(hourly[:-1], hourly[1:], **settings, repeats=True)
    rates = {"lower": found.lower, "upper": found.upper, **found.compared}
    numbers = {name: round(float(rate), 5) for name, rate in rates.items()}
    return {**settings, "rows": ROWS, **numbers, "confirmed": found.confirmed}


def main() -> None:
    """Store all of it."""
    found = {"level": measure_level(), "sets": measure_sets(), "order": measure_order()}
    lines = (f"{json.dumps(name)}: {json.dumps(part)}" for name, part in found.items())
    RUNS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"stored: {RUNS.name}")


if __name__ == "__main__":
    main()
