"""Evidence for the bound that holds in every order, and for the worst orders that are found.

    python benchmarks/order_proof.py --processes 2          # a small run, minutes
    python benchmarks/order_proof.py --processes 16 --full  # 10^6 random orders, 50 problems

below      At 0.99 times the bound: random orders, with repeats and of lengths from 8 to 256, and
           adversarial searches over random problems, for heavy ball and Nesterov. The growth of an
           order is that of its product, repeated. On a sample, torch's and optax's own SGD train
           in the worst order found and in random ones.
above      Above the bound: orders found, and what torch and optax do in them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import multiprocessing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import resonax as rx
from resonax.rows.beam import beam_search, repeating_parts
from resonax.rows.order_search import search_permutation, search_words
from resonax.rows.row_updates import RowUpdates
from resonax.theory.order_proof import circle_norm

OPTIMIZERS = {"heavy_ball": rx.heavy_ball, "nesterov": rx.nesterov}
LENGTHS = (8, 16, 32, 64, 128, 256)
GROWS = 1e-9  # a rate above this is growth, one below is rounding
TOGETHER = 500  # orders followed at once


class Problem(NamedTuple):
    """Random rows, and an optimizer whose step size is some times the bound."""

    seed: int
    name: str
    factor: float

    def make(self) -> tuple[np.ndarray, Any]:
        rng = np.random.default_rng(self.seed)
        size, count = int(rng.integers(1, 5)), int(rng.integers(4, 60))
        rows = rng.normal(size=(count, size)) * np.exp(rng.normal(size=size))
        if rng.uniform() < 0.5:
            rows[:, -1] = 1.0  # a bias
        momentum = float(rng.choice([0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98]))
        curvature = 2 * float(np.max(np.sum(rows**2, axis=1)))
        largest = rx.order_proof(OPTIMIZERS[self.name](1e-3, momentum), curvature).lr
        assert largest is not None
        return rows, OPTIMIZERS[self.name](self.factor * largest, momentum)


def random_orders(problem: Problem, count: int) -> float:
    """Return the largest rate of random orders of a problem."""
    rows, optimizer = problem.make()
    updates, rng = RowUpdates.of(rows, optimizer), np.random.default_rng([problem.seed, 1])
    worst, left = -np.inf, count
    while left > 0:
        shape = (min(TOGETHER, left), int(rng.choice(LENGTHS)))
        worst = max(worst, float(updates.rates(rng.integers(len(rows), size=shape)).max()))
        left -= shape[0]
    return worst


def adversary(problem: Problem) -> tuple[float, np.ndarray]:
    """Return the largest rate that the searches find for a problem, and its order."""
    rows, optimizer = problem.make()
    updates, rng = RowUpdates.of(rows, optimizer), np.random.default_rng([problem.seed, 2])
    norm, _ = circle_norm(optimizer, 2 * float(np.max(np.sum(rows**2, axis=1))))
    path = beam_search(updates, norm, 200)
    word = search_words(updates, repeating_parts(updates, path[50:], 80))
    once = search_permutation(updates, [rng.permutation(len(rows))], rng)
    best = max((word, once), key=lambda found: found.rate)
    return best.rate, best.word


def train_torch(rows: np.ndarray, optimizer: Any, places: Iterable[int]) -> np.ndarray:
    """Train by torch's SGD on targets of 0; return the log of the length of the weights."""
    import torch

    torch.set_num_threads(1)
    weights = torch.nn.Parameter(torch.ones(rows.shape[1], dtype=torch.float64))
    method = torch.optim.SGD(
        [weights],
        lr=optimizer.lr,
        momentum=optimizer.momentum,
        nesterov=optimizer.lookahead and optimizer.momentum > 0,
    )
    logs, table = [], torch.tensor(rows)
    for place in places:
        method.zero_grad()
        ((table[place] @ weights) ** 2).backward()
        method.step()
        logs.append(float(weights.detach().norm().log()))
    return np.array(logs)


def train_optax(rows: np.ndarray, optimizer: Any, places: Iterable[int]) -> np.ndarray:
    """Train by optax's sgd in the same way."""
    import jax
    import jax.numpy as jnp
    import optax

    with jax.enable_x64(True):
        method = optax.sgd(
            optimizer.lr, momentum=optimizer.momentum or None, nesterov=optimizer.lookahead
        )

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            weights, state = carry
            gradient = jax.grad(lambda at: (row @ at) ** 2)(weights)
            change, state = method.update(gradient, state, weights)
            weights = optax.apply_updates(weights, change)
            return (weights, state), jnp.log(jnp.linalg.norm(weights))

        weights = jnp.ones(rows.shape[1])
        order = jnp.asarray(rows[np.fromiter(places, dtype=int)])
        _, logs = jax.lax.scan(step, (weights, method.init(weights)), order)
        return np.asarray(logs)


TRAINERS: dict[str, Callable[..., np.ndarray]] = {"torch": train_torch, "optax": train_optax}


def repeated(word: np.ndarray, steps: int) -> list[int]:
    return np.resize(word, steps).tolist()


def below(job: tuple[Problem, int, bool]) -> dict[str, float]:
    problem, count, trains = job
    found, word = adversary(problem)
    result = {"random": random_orders(problem, count), "adversary": found}
    rows, optimizer = problem.make()
    rng = np.random.default_rng([problem.seed, 3])
    orders = [repeated(word, 2000), rng.integers(len(rows), size=2000).tolist()]
    for name, train in TRAINERS.items() if trains else ():
        result[name] = max(float(train(rows, optimizer, order)[-1]) for order in orders)
        result[name] -= 0.5 * np.log(rows.shape[1])  # over the length at the start
    return result


def above(problem: Problem) -> dict[str, float]:
    rate, word = adversary(problem)
    rows, optimizer = problem.make()
    result = {"found": rate, "size": float(rows.shape[1])}
    if rate <= 1e-4:
        return result
    times = max(2, int(min(300 / rate, 100_000)) // len(word))  # so that no number overflows
    for name, train in TRAINERS.items():
        logs = train(rows, optimizer, repeated(word, times * len(word)))
        # Once a word, in the second half: complex multipliers let the length swing around its
        # growth, which a line through many of its values averages out.
        places = np.arange(times // 2, times + 1) * len(word) - 1
        result[name] = float(np.polyfit(places, logs[places], 1)[0])
    return result


def show(rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    table = [[_short(row.get(name)) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in table)) for i, name in enumerate(names)]
    for line in [names, *table]:
        print("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))
    print(flush=True)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run_below(pool: Any, problems: int, orders: int, trained: int) -> bool:
    totals = []
    for name in OPTIMIZERS:
        jobs = [(Problem(i, name, 0.99), orders // problems, i < trained) for i in range(problems)]
        found = pool.map(below, jobs, chunksize=1)
        row: dict[str, Any] = {"optimizer": name, "problems": problems}
        row["random orders"] = problems * (orders // problems)
        row["grow"] = sum(one["random"] > GROWS for one in found)
        row["adversaries"] = problems
        row["grow "] = sum(one["adversary"] > GROWS for one in found)
        row["largest rate"] = max(max(one["random"], one["adversary"]) for one in found)
        for trainer in TRAINERS:
            logs = [one[trainer] for one in found if trainer in one]
            row[f"{trainer} runs"] = 2 * len(logs)
            row[f"{trainer} largest log size"] = max(logs, default=float("nan"))
        totals.append(row)
    print("below: 0.99 times the bound; nothing may grow")
    show(totals)
    return all(row["grow"] == row["grow "] == 0 for row in totals)


def run_above(pool: Any, problems: int) -> bool:
    totals, good = [], True
    for name in OPTIMIZERS:
        for factor in (1.5, 4.0):
            jobs = [Problem(i, name, factor) for i in range(problems)]
            found = pool.map(above, jobs, chunksize=1)
            grown = [one for one in found if "torch" in one]
            row: dict[str, Any] = {"optimizer": name, "times the bound": factor}
            row |= {"problems": problems, "orders that grow": len(grown)}
            for trainer in TRAINERS:
                off = [abs(one[trainer] / one["found"] - 1) for one in grown]
                row[f"{trainer} within 5%"] = sum(part < 0.05 for part in off)
                good = good and row[f"{trainer} within 5%"] == len(grown)
                for one, part in zip(grown, off, strict=True):
                    if not part < 0.05:
                        print(
                            f"{name}, {factor:g} times: {trainer} {one[trainer]:.3e}, "
                            f"found {one['found']:.3e}"
                        )
            totals.append(row)
    print("above: orders found with a rate above 1e-4, and the growth of training in them")
    show(totals)
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--full", action="store_true", help="10^6 random orders, 50 problems")
    asked = parser.parse_args()
    problems, orders, trained = (50, 1_000_000, 20) if asked.full else (6, 6_000, 2)
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        good = run_below(pool, problems, orders, trained)
        good &= run_above(pool, problems)
    print("all held" if good else "NOT all held")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
