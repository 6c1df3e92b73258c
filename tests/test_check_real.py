"""Real recordings: what the check says, and what the learners of other libraries then do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recordings import RECORDINGS
from resonax import check
from resonax.learners import Linear, Momentum
from resonax.recordings.recording import Recording
from resonax.rows.feed import principal_axes
from resonax.rows.subject import Subject
from resonax.rows.surrogates import buffered

MOMENTA = np.array([0.0, 0.8, 0.9, 0.95, 0.98])
LRS = np.array([0.002, 0.01, 0.05])
QUICK = ["san-francisco"]
LEAST = {"ice-core": 2}  # cells that must be decided, where not many are


def standardised(name: str, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y = (part[first:] for part in RECORDINGS[name]())
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def river_sizes(
    X: np.ndarray, y: np.ndarray, lr: float, momentum: float, intercept_lr: float = 0.01
) -> np.ndarray:
    """Train river's own model, and return the size of its weights after each tenth of the rows."""
    from river import linear_model, optim

    model = linear_model.LinearRegression(
        optimizer=optim.Momentum(lr, momentum), intercept_lr=intercept_lr, clip_gradient=1e300
    )
    sizes = []
    for part_x, part_y in zip(np.array_split(X, 40), np.array_split(y, 40), strict=True):
        for row, target in zip(part_x.tolist(), part_y.tolist(), strict=True):
            model.learn_one(dict(enumerate(row)), target)
        size = math.hypot(model.intercept, *model.weights.values())
        sizes.append(size)
        if not size < 1e150:
            break
    return np.array(sizes)


def solution(X: np.ndarray, y: np.ndarray) -> float:
    rows = np.hstack([X, np.ones((len(X), 1))])
    return 1.0 + float(np.linalg.norm(np.linalg.lstsq(rows, y, rcond=1e-9)[0]))


def subject(X: np.ndarray, intercept_lr: float | None) -> Subject:
    recording = Recording(X.astype(np.float32), None, ("x",) * X.shape[1], None, "array", ())
    model = principal_axes(Linear(), recording.inputs, intercept_lr)
    momenta, lrs = (axis.ravel() for axis in np.meshgrid(MOMENTA, LRS, indexing="ij"))
    optimizer = Momentum(lrs, momenta)
    return Subject(optimizer, model, recording=recording)


def numbers(asked: Subject, cell: np.integer) -> tuple[float, float]:
    """Return lr and momentum of a cell."""
    found = (np.asarray(each)[cell] for each in (asked.optimizer.lr, asked.optimizer.momentum))
    lr, momentum = map(float, found)
    return lr, momentum


def agreement(name: str, most: int | None = None) -> tuple[int, list[str]]:
    """Return the cells that were decided, and those in which river does otherwise."""
    X, y = (part[:most] for part in standardised(name))
    decided, wrong = 0, []
    for order in ("chronological", "shuffled"):
        if order == "shuffled":
            places = np.random.default_rng(1).permutation(len(X))
            X, y = X[places], y[places]
        asked = subject(X, 0.01)
        found = asked.measure()
        size = solution(X, y)
        for cell in np.flatnonzero((found.low > 0) | (found.high < 0)):
            lr, momentum = numbers(asked, cell)
            sizes = river_sizes(X, y, lr, momentum) / size
            grows = found.low[cell] > 0
            decided += 1
            if (grows and sizes[-1] < 100) or (not grows and sizes.max() > 1000):
                wrong.append(f"{order} {momentum=} {lr=} rate {found.rate[cell]:.5f} {sizes[-1]:g}")
    return decided, wrong


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *((name, 4000) for name in QUICK),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in RECORDINGS),
    ],
)
def test_river_does_what_the_sign_of_the_rate_says(name, most):
    decided, wrong = agreement(name, most)
    assert decided >= LEAST.get(name, 10)
    assert wrong == []


def test_river_agrees_near_the_border_on_the_first_rows_of_every_recording():
    """In the cell that grows least, of those in which so few rows grow much, and in its like."""
    grown, fallen = 0, 0
    for name in RECORDINGS:
        X, y = (part[:3000] for part in standardised(name))
        asked = subject(X, 0.01)
        found = asked.measure()
        growing = np.flatnonzero((found.low > 0) & (found.rate * len(X) > math.log(1e4)))
        falling = np.flatnonzero(found.high < 0)
        size = solution(X, y)
        for cells, grows in ((growing, True), (falling, False)):
            if len(cells):
                cell = cells[np.abs(found.rate[cells]).argmin()]
                lr, momentum = numbers(asked, cell)
                sizes = river_sizes(X, y, lr, momentum) / size
                grown, fallen = grown + grows, fallen + (not grows)
                assert sizes[-1] > 100 if grows else sizes.max() < 1000, (name, lr, momentum)
    assert min(grown, fallen) >= 7


def heavy_ball(X: np.ndarray, y: np.ndarray, lr: float, momentum: float, batch: int = 1) -> float:
    """Train a plain NumPy learner with a bias, and return the largest size of its weights."""
    rows = np.hstack([X, np.ones((len(X), 1))])
    weights, velocity, largest = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0.0
    for start in range(0, len(rows) // batch * batch, batch):
        part = rows[start : start + batch]
        gradient = 2 / batch * part.T @ (part @ weights - y[start : start + batch])
        velocity = momentum * velocity - lr * gradient
        weights = weights + velocity
        largest = max(largest, float(np.abs(weights).max()))
        if largest > 1e150:
            break
    return largest


def heavy_balls(X: np.ndarray, y: np.ndarray, lrs: np.ndarray, momenta: np.ndarray) -> np.ndarray:
    """Train several plain learners side by side, and return the largest size of their weights."""
    rows = np.hstack([X, np.ones((len(X), 1))])
    weights, velocities = np.zeros((2, len(lrs), rows.shape[1]))
    lrs, momenta, largest = 2 * lrs[:, None], momenta[:, None], np.zeros(len(lrs))
    with np.errstate(all="ignore"):
        for row, wanted in zip(rows, y, strict=True):
            velocities = momenta * velocities - lrs * (weights @ row - wanted)[:, None] * row
            weights = weights + velocities
            largest = np.fmax(largest, np.abs(weights).max(axis=1))
    return largest


@pytest.mark.parametrize(
    ("name", "first"),
    [
        *((name, -4000) for name in QUICK),  # the last ones
        *(
            pytest.param(name, 0, marks=pytest.mark.slow)
            for name in ("san-francisco", "nox", "pendulum", "victoria", "taylor", "mountain-car")
        ),
    ],
)
def test_the_remedies_work(name, first):
    X, y = standardised(name, first)
    lr, momentum = 0.01, 0.95
    found = check(X, y, lr=lr, momentum=momentum, grid=4)
    limit = 1000 * solution(X, y)
    conservative = {remedy.name: remedy.is_conservative for remedy in found.remedies}
    past = {remedy.name: remedy.just_beyond for remedy in found.remedies}

    asked = [
        (value, momentum) if which == "lr" else (lr, value)
        for values in (found.safe, past)
        for which, value in values.items()
        if which not in ("batch", "shuffle_buffer") and value is not None
    ]
    sizes = dict(zip(asked, heavy_balls(X, y, *np.array(asked).T), strict=True))

    def size(which: str, value: float) -> float:
        if which == "batch":
            return heavy_ball(X, y, lr, momentum, int(value))
        if which == "shuffle_buffer":
            order = buffered(len(X), int(value), 1, np.random.default_rng(99))
            return heavy_ball(X[order], y[order], lr, momentum)
        return sizes[(value, momentum) if which == "lr" else (lr, value)]

    for which, value in found.safe.items():
        if value is None:
            continue
        assert size(which, value) < limit, which
        beyond = None if which == "fastest_momentum" else past[which]
        if beyond is not None and not conservative[which]:
            assert size(which, beyond) > 100 * solution(X, y), which
    assert all(remedy.confirmed for remedy in found.remedies if remedy.value is not None)
