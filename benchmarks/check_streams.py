"""Made streams with a known truth, and what `resonax check` says of them.

Truth is computed here in plain NumPy, in 64 bits, by none of the library's code:

- on these rows: the heavy ball recursion over the very rows, from all starts at rest;
- on more of the same: the same recursion over long independent continuations of the process;
- the rhythm: a period is the cause if the growth ends when the generator is run without it, its
  power replaced by white noise;
- remedies: the model, trained with each of them for twenty passes (fewer if the rows are many).

Seed 0 was used to tune, seed 1 to report.

Run: PYTHONPATH=src python benchmarks/check_streams.py --processes 16 --seed 1
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

FAMILIES = ("iid", "one", "size", "several", "switching", "trend", "heteroscedastic", "heavy")
MOMENTA = (0.0, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99)
LEAST, MOST = 300, 100_000
LANES, CONTINUED, SETTLED = 16, 24_000, 2_000
TRAINED_STEPS = 100_000
PASSES = 20
BOUNDED = 1000.0
NEAR = 0.15  # of the growth: what is left without a rhythm is then too near to 0 for a truth
BURST = np.log(30.0)

Make = Callable[[np.random.Generator, int], np.ndarray]  # rows of one realisation


@dataclass(frozen=True)
class Stream:
    """A process and how it is trained on."""

    family: str
    rows: int
    epochs: int
    lr: float
    momentum: float
    make: Make
    periods: tuple[float, ...] = ()
    without: tuple[Make, ...] = ()  # the generator without each of the periods
    stationary: bool = True


@dataclass
class Outcome:
    """What was found on one stream: each entry counts for a line of the table."""

    family: str
    counts: Counter = field(default_factory=Counter)
    seconds: float = 0.0
    remarks: list[str] = field(default_factory=list)


def make_stream(seed: int, index: int, most: int = MOST) -> Stream:
    """Draw a stream: its family by turns, the rest at random."""
    rng = np.random.default_rng([seed, index])
    family = FAMILIES[index % len(FAMILIES)]
    rows = int(np.exp(rng.uniform(np.log(LEAST), np.log(most))))
    epochs = int(rng.integers(1, 6))
    epochs = max(1, min(epochs, MOST // rows))
    lr = float(np.exp(rng.uniform(np.log(0.003), np.log(0.03))))
    momentum = float(rng.choice(MOMENTA))
    kwargs: dict[str, Any] = {}
    if family in ("iid", "heavy"):
        columns = int(rng.choice([1, 2, 5]))
        if rng.random() < 0.5:  # near the largest step size of independent rows
            lr = float(rng.uniform(0.3, 1.5) / (columns + 2) * (1 - momentum) ** 0.5)
        make = _iid(columns) if family == "iid" else _heavy(columns, float(rng.uniform(2.5, 5)))
    elif family in ("one", "size"):
        momentum = float(rng.choice([0.9, 0.95, 0.97, 0.98]))
        natural = 2 * np.pi / np.sqrt(2 * lr)
        period = float(natural * rng.uniform(0.93, 1.07) * rng.choice([0.5, 1.0]))
        if rng.random() < 0.2:
            period = float(natural * rng.uniform(0.2, 2))
        strength = float(rng.uniform(0.5, 0.95))
        builder = _rhythm if family == "one" else _size_rhythm
        make = builder(period, strength)
        kwargs = {"periods": (period,), "without": (builder(period, strength, silent=True),)}
    elif family == "several":
        momentum = float(rng.choice([0.95, 0.97, 0.98, 0.99]))
        count = int(rng.integers(2, 10))
        natural = 2 * np.pi / np.sqrt(2 * lr)
        if rng.random() < 0.5:
            periods = tuple(24.0 * k for k in range(1, count + 1))
        else:
            periods = tuple(natural * np.exp(rng.uniform(-1.2, 1.2, count)))
        make = _rhythms(periods, None)
        without = tuple(_rhythms(periods, place) for place in range(count))
        kwargs = {"periods": periods, "without": without}
    elif family == "switching":
        momentum = float(rng.choice([0.9, 0.95, 0.97]))
        make = _switching(int(rng.integers(3, 31)), int(rng.choice([1, 2, 5])))
    elif family == "trend":
        make = _trend(float(rng.uniform(0.5, 3)))
        kwargs = {"stationary": False}
    else:
        make = _heteroscedastic(float(rng.uniform(0.3, 1.2)), float(rng.uniform(5, 200)))
    return Stream(family, rows, epochs, lr, momentum, make, **kwargs)


def _iid(columns: int) -> Make:
    return lambda rng, rows: rng.normal(size=(rows, columns))


def _heavy(columns: int, freedom: float) -> Make:
    scale = np.sqrt((freedom - 2) / freedom)
    return lambda rng, rows: scale * rng.standard_t(freedom, size=(rows, columns))


def _rhythm(period: float, strength: float, *, silent: bool = False) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        wave = np.sin(2 * np.pi * np.arange(rows) / period + rng.uniform(0, 2 * np.pi))
        wave = rng.normal(size=rows) / np.sqrt(2) if silent else wave
        noise = np.sqrt(1 - strength) * rng.normal(size=rows)
        return (np.sqrt(2 * strength) * wave + noise)[:, None]

    return make


def _size_rhythm(period: float, strength: float, *, silent: bool = False) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        phase = 2 * np.pi * np.arange(rows) / period + rng.uniform(0, 2 * np.pi)
        phase = rng.uniform(0, 2 * np.pi, rows) if silent else phase
        signs = rng.choice([-1.0, 1.0], rows)
        return (signs * np.sqrt(1 + strength * np.sin(phase)))[:, None]

    return make


def _rhythms(periods: tuple[float, ...], without: int | None) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        total = np.sqrt(0.15) * rng.normal(size=rows)
        for place, period in enumerate(periods):
            wave = np.sin(2 * np.pi * np.arange(rows) / period + rng.uniform(0, 2 * np.pi))
            if place == without:
                wave = rng.normal(size=rows) / np.sqrt(2)
            total = total + np.sqrt(2 * 0.85 / len(periods)) * wave
        return total[:, None]

    return make


def _switching(period: int, columns: int) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        means = 0.5 * rng.normal(size=(rows // period + 1, columns))
        held = np.repeat(means, period, axis=0)[:rows]
        return held + 0.5 * rng.normal(size=(rows, columns))

    return make


def _trend(slope: float) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        line = slope * np.linspace(-1, 1, rows)
        return (line + rng.normal(size=rows))[:, None] / np.sqrt(1 + slope**2 / 3)

    return make


def _heteroscedastic(strength: float, memory: float) -> Make:
    def make(rng: np.random.Generator, rows: int) -> np.ndarray:
        keep = np.exp(-1 / memory)
        shocks = np.sqrt(1 - keep**2) * rng.normal(size=rows)
        level = np.empty(rows)
        state = rng.normal()
        for k, shock in enumerate(shocks):
            state = keep * state + shock
            level[k] = state
        return (np.exp(strength * level / 2 - strength**2 / 4) * rng.normal(size=rows))[:, None]

    return make


def with_bias(rows: np.ndarray) -> np.ndarray:
    """Return rows with a last column of ones."""
    return np.concatenate([rows, np.ones((*rows.shape[:-1], 1))], axis=-1)


def growth_on(rows: np.ndarray, epochs: int, lr: float, momentum: float) -> tuple[float, float]:
    """Return the log growth of an error over passes, and its largest rise, from all starts."""
    phi = with_bias(rows.astype(np.float32).astype(float))
    values, vectors = np.linalg.eigh(2 * phi.T @ phi / len(phi))
    phi, curvature = phi @ vectors, values[:, None]
    inertia = np.maximum(1 / lr - curvature / 2, 0)
    weights, velocity = np.eye(len(values)), np.zeros((len(values),) * 2)
    scale, lowest, rise, reached = 0.0, 0.0, 0.0, 0.0
    start = 0.5 * np.log(values.sum())
    for row in np.tile(phi, (epochs, 1)):
        before = weights
        velocity = momentum * velocity - 2 * lr * np.outer(row, row @ weights)
        weights = weights + velocity
        energy = curvature * (weights**2 + before**2) / 2 + inertia * velocity**2
        size = np.sqrt(max(energy.sum(), 1e-300))
        weights, velocity, scale = weights / size, velocity / size, scale + np.log(size)
        reached = scale - start
        lowest = min(lowest, reached)
        rise = max(rise, reached - lowest)
    return reached, rise


def exponent(make: Make, lr: float, momentum: float, seed: list[int]) -> tuple[float, float]:
    """Return the mean growth per step on independent continuations, and its standard error."""
    rngs = [np.random.default_rng([*seed, lane]) for lane in range(LANES)]
    rows = with_bias(np.stack([make(rng, CONTINUED) for rng in rngs], axis=1))
    weights = np.stack([rng.normal(size=rows.shape[-1]) for rng in rngs])
    velocity, grown = np.zeros_like(weights), np.zeros(LANES)
    for step, row in enumerate(rows, start=1):
        error = np.einsum("ij,ij->i", row, weights)[:, None]
        velocity = momentum * velocity - 2 * lr * row * error
        weights = weights + velocity
        if step % 8 == 0:
            size = np.sqrt((weights**2 + velocity**2 / lr).sum(axis=1))
            weights, velocity = weights / size[:, None], velocity / size[:, None]
            if step > SETTLED:
                grown += np.log(size)
    rates = grown / (CONTINUED - SETTLED)
    return float(rates.mean()), float(rates.std(ddof=1) / np.sqrt(LANES))


def largest(
    rows: np.ndarray, target: np.ndarray, lrs: np.ndarray, momenta: np.ndarray, batch: int = 1
) -> np.ndarray:
    """Return the largest weight of models trained side by side on the rows given."""
    phi = with_bias(rows)
    weights, velocity = (np.zeros((phi.shape[1], len(lrs))) for _ in range(2))
    most = np.zeros(len(lrs))
    for first in range(0, len(phi) // batch * batch, batch):
        part = phi[first : first + batch]
        errors = part @ weights - target[first : first + batch, None]
        velocity = momenta * velocity - lrs * (2 / batch) * (part.T @ errors)
        weights = weights + velocity
        most = np.maximum(most, np.abs(weights).max(axis=0))
        if not most.max() < 1e200:
            break
    return np.where(np.isfinite(most), most, np.inf)


def _buffered(rows: int, size: int, rng: np.random.Generator) -> np.ndarray:
    held, order = list(range(min(size, rows))), []
    for following in range(len(held), rows):
        place = int(rng.integers(len(held)))
        order.append(held[place])
        held[place] = following
    return np.array(order + rng.permutation(held).tolist())


def judge(seed: int, index: int, most: int = MOST) -> Outcome:
    """Check one stream, compute the truth, and compare."""
    import resonax as rx

    stream = make_stream(seed, index, most)
    rng = np.random.default_rng([seed, index, 1])
    rows = stream.make(rng, stream.rows).astype(np.float32)
    weights = rng.normal(size=rows.shape[1])
    target = (rows @ weights + 0.3 * rng.normal(size=len(rows))).astype(np.float32)
    settings = {"lr": stream.lr, "momentum": stream.momentum, "epochs": stream.epochs}
    start = time.perf_counter()
    found = rx.check(rows, target, **settings, standardise=False, grid=2)
    outcome = Outcome(stream.family, seconds=time.perf_counter() - start)
    name = f"{index} {stream.family} {stream.rows} rows x {stream.epochs}, " + (
        f"lr {stream.lr:.3g}, momentum {stream.momentum:g}"
    )

    def count(line: str, wrong: bool, remark: str) -> None:
        outcome.counts[line] += 1
        if wrong:
            outcome.counts[f"{line}!"] += 1
            outcome.remarks.append(f"{line}: {name}: {remark}")

    grown, rise = growth_on(rows, stream.epochs, stream.lr, stream.momentum)
    later = grown  # after more passes, which may take back what one of them adds
    if grown > 0 and stream.epochs < PASSES:
        later, _ = growth_on(rows, PASSES, stream.lr, stream.momentum)
    truth = "diverges" if min(grown, later) > 0 else "rises" if rise > BURST else "converges"
    near = min(abs(grown), abs(later)) < 1e-4
    near |= truth != "diverges" and abs(rise - BURST) < 1e-3
    count(
        "rows", found.verdict != truth and not near, f"{found.verdict}, is {grown:+.3f}, {rise:.3f}"
    )
    outcome.counts[f"is {truth}"] += 1

    rate, error = exponent(stream.make, stream.lr, stream.momentum, [seed, index, 2])
    if stream.stationary and abs(rate) > 4 * error:
        sign = "diverges" if rate > 0 else "converges"
        more = found.on_more
        wrong = more.verdict not in ("undecided", sign)
        count("more", wrong, f"{more.rate:.5f} in {more.low:.5f} {more.high:.5f}, is {rate:.5f}")
        outcome.counts["decided"] += more.verdict != "undecided"

    if found.verdict == "diverges":
        _judge_rhythm(stream, found, rate, error, [seed, index, 3], count)
    _judge_remedies(stream, found, rows, target, count)
    return outcome


def _judge_rhythm(stream, found, rate, error, seed, count) -> None:
    """Compare what was named with the periods without which the growth ends."""
    ends = []
    open_case = abs(rate) < 4 * error
    for period, make in zip(stream.periods, stream.without, strict=True):
        left, spread = exponent(make, stream.lr, stream.momentum, seed)
        open_case = open_case or abs(left) < max(4 * spread, NEAR * abs(rate))
        if left < 0:
            ends.append(period)
    if stream.periods and (rate <= 0 or open_case):
        return  # these rows grow by chance, or the boundary is too near to have a truth
    named = found.period
    near = [
        period
        for period in ends
        if named and abs(1 / named - 1 / period) < max(0.05 / period, 1 / stream.rows)
    ]
    remark = f"named {named}, cause {found.cause}, periods {ends} of {stream.periods}"
    if ends:
        count("rhythm", not near, remark)
    else:
        count("none", named is not None, remark)


def _judge_remedies(stream, found, rows, target, count) -> None:
    """Train with each remedy, and see whether the weights stay of the size of the solution."""
    passes = max(stream.epochs, min(PASSES, TRAINED_STEPS // len(rows)))
    solution = np.linalg.lstsq(with_bias(rows.astype(float)), target, rcond=1e-9)[0]
    limit = BOUNDED * (1 + np.linalg.norm(solution))
    many, wanted = np.tile(rows, (passes, 1)).astype(float), np.tile(target, passes).astype(float)
    safe = {name: value for name, value in found.safe.items() if value is not None}
    side = [name for name in ("momentum", "lr", "fastest_momentum") if name in safe]
    if side:
        lrs = np.array([safe[name] if name == "lr" else stream.lr for name in side])
        momenta = np.array([stream.momentum if name == "lr" else safe[name] for name in side])
        for name, size in zip(side, largest(many, wanted, lrs, momenta), strict=True):
            count("remedy", size > limit, f"{name} {safe[name]}: {size:.3g}")
    own = np.array([stream.lr]), np.array([stream.momentum])
    if safe.get("batch", 1) > 1:
        batch = int(safe["batch"])
        used = len(rows) // batch * batch
        many = np.tile(rows[:used], (passes, 1)).astype(float)
        size = largest(many, np.tile(target[:used], passes), *own, batch)[0]
        count("remedy", size > limit, f"batch {batch}: {size:.3g}")
    if safe.get("shuffle_buffer", 1) > 1:
        rng = np.random.default_rng(99)
        size = int(safe["shuffle_buffer"])
        order = np.concatenate([_buffered(len(rows), size, rng) for _ in range(passes)])
        size = largest(rows[order].astype(float), target[order], *own)[0]
        count("remedy", size > limit, f"shuffle_buffer {safe['shuffle_buffer']}: {size:.3g}")


LINES = {
    "rows": "wrong on these rows",
    "more": "wrong on further data (5% allowed)",
    "rhythm": "rhythm not named, or another",
    "none": "named where there is none",
    "remedy": "remedies that do not stay bounded",
}


def table(outcomes: list[Outcome]) -> str:
    """Return the counts by family, and of all."""
    total = replace(Outcome("all"), counts=sum((o.counts for o in outcomes), Counter()))
    groups = [*(FAMILIES), "all"]
    sums = {
        name: sum((o.counts for o in outcomes if o.family == name), Counter()) for name in FAMILIES
    } | {"all": total.counts}
    lines = [f"{'':40s}" + "".join(f"{name[:10]:>12s}" for name in groups)]
    for key, words in LINES.items():
        cells = (f"{sums[name][key + '!']}/{sums[name][key]}" for name in groups)
        lines.append(f"{words:40s}" + "".join(f"{cell:>12s}" for cell in cells))
    counts = total.counts
    lines.append(
        f"{len(outcomes)} streams: on these rows {counts['is diverges']} diverge, "
        f"{counts['is rises']} rise and fall, {counts['is converges']} converge; on further "
        f"data {counts['decided']} of {counts['more']} are decided"
    )
    seconds = np.array([o.seconds for o in outcomes])
    lines.append(f"check: median {np.median(seconds):.1f} s, longest {seconds.max():.1f} s")
    return "\n".join(lines)


def _judge(args: tuple[int, int, int]) -> Outcome:
    return judge(*args)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=MOST, help="rows")
    asked = parser.parse_args()
    os.environ |= {
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    }
    start = time.perf_counter()
    work = [(asked.seed, index, asked.most) for index in range(asked.streams)]
    # The longest first, so that no process is left with one at the end.
    work.sort(key=lambda args: -make_stream(*args).rows)
    outcomes = []
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for outcome in pool.imap_unordered(_judge, work):
            outcomes.append(outcome)
            for remark in outcome.remarks:
                print(remark, flush=True)
    print(table(outcomes))
    print(f"seed {asked.seed}, {asked.processes} processes, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
