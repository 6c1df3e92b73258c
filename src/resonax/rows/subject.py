"""A problem whose inputs are the rows of a recording, and how differences grow along them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.dynamics.problem import Problem
from resonax.learners import Features, Momentum
from resonax.recordings.recording import Recording
from resonax.rows.exact import Exact, follow_rows
from resonax.rows.feed import Feed, Principal, feed_of, principal_axes
from resonax.rows.intervals import LEAST_STEPS, MOST_ROWS, Measured, Pass, joined, measure
from resonax.rows.logistic import BOUND, follow_rows_logistic, walk_logistic
from resonax.rows.recursion import Weights, is_small, walk
from resonax.streams import Recorded

__all__ = ["Advance", "Order", "Subject", "prepare"]

Advance = Callable[[int], None]
Order = np.ndarray  # indices of rows, one for each row that is trained on

_MOST_WEIGHTS = 2000
_MOST_FILLED = 64  # weights: up to here rows of zeros take less time than to compile
_TOGETHER = 16  # sequences of rows in one pass: all passes of this kind share one compiled loop


@dataclass(frozen=True)
class Subject(Problem):
    """A problem whose inputs are the rows of a recording, in their order."""

    process: Recorded = field(init=False)  # the rows of the recording
    optimizer: Momentum  # its numbers may be arrays, one entry for each cell
    model: Principal = field()
    batch: int = 1
    _: KW_ONLY
    recording: Recording
    epochs: int = 1
    level: float = 0.95
    seed: int = 0
    filled: bool = False  # whether batches of all sizes share one compiled loop
    loss: str = "squared"  # or logistic, whose curvature is that along the trained run

    def __post_init__(self) -> None:
        rows = Recorded(self.recording.inputs[:, None], repeat=self.epochs > 1)
        object.__setattr__(self, "process", rows)
        super().__post_init__()
        if self.reduction != "mean":
            raise ArgumentError("along a recording gradients are averaged over the batch")

    @property
    def rows(self) -> int:
        """Rows that are trained on, all epochs together: an incomplete last batch is left out."""
        return len(self.recording.inputs) // self.batch * self.batch * self.epochs

    @property
    def steps(self) -> int:
        """Updates in all epochs."""
        return self.rows // self.batch

    def weights(self, *, target: bool = False) -> Weights:
        """Return how each weight moves."""
        # That of the model is of the squared error, 2 E[phi phi^T]
        share = BOUND / 2 if self.is_logistic else 1.0
        return Weights.of(share * self.model.curvature, self.model.intercept_lr, target=target)

    @property
    def is_logistic(self) -> bool:
        """Whether the target is a class."""
        return self.loss == "logistic"

    def at_bound(self) -> Subject:
        """Return the subject with the largest curvature that the logistic loss can have.

        A quarter of that of the rows, which is that of the squared error with an eighth of the step
        size; it is reached where the weights are zero.
        """
        share, optimizer, lr = BOUND / 2, self.optimizer, self.model.intercept_lr
        return replace(
            self,
            loss="squared",
            model=replace(self.model, intercept_lr=None if lr is None else share * lr),
            optimizer=replace(
                optimizer, lr=share * optimizer.lr, weight_decay=optimizer.weight_decay / share
            ),
        )

    def feed(self, orders: Sequence[Order] | None = None, *, target: bool = False) -> Feed:
        """Return the rows in their own order, or in several others side by side."""
        inputs, outputs = self.recording.inputs, self.recording.target
        target = target or self.is_logistic
        rows = self.rows if orders is None else len(orders[0])
        largest = self.model.largest
        if target:
            assert outputs is not None
            largest = float(np.hypot(largest, np.abs(outputs).max()))

        used = self.rows // self.epochs

        def places(first: int, last: int) -> np.ndarray:
            if orders is None:
                return (np.arange(first, last) % used)[:, None]
            return np.stack([order[first:last] for order in orders], axis=1)

        def fetch(first: int, last: int) -> np.ndarray:
            start, stop = first % used, (last - 1) % used + 1
            if orders is None and stop - start == last - first:
                return inputs[start:stop, :, None]  # no copy by indices, which is slow on disk
            return np.moveaxis(inputs[places(first, last)], 1, -1)

        def targets(first: int, last: int) -> np.ndarray:
            assert outputs is not None
            return outputs[places(first, last)]

        return feed_of(
            self.model,
            fetch,
            rows,
            inputs.shape[1],
            batch=self.batch,
            sequences=1 if orders is None else len(orders),
            targets=targets if target else None,
            rank=self.model.size(inputs.shape[1]) + target if self.filled else None,
            largest=largest,
            logistic=self.is_logistic,
        )

    def follow(self, feed: Feed, advance: Advance | None = None) -> Pass:
        """Follow a difference between two runs."""
        if self.is_logistic:
            return walk_logistic(
                feed, self.optimizer, self.weights(), seed=self.seed, advance=advance
            )
        return walk(feed, self.optimizer, self.weights(), seed=self.seed, advance=advance)

    def follow_exactly(self, order: Order | None = None) -> Exact:
        """Follow an error in 64 bits, from all starts; over one order, or the rows in their own."""
        orders = None if order is None else [order]
        once = replace(self, epochs=1 if order is None else self.epochs)
        epochs = self.epochs if order is None else 1
        if self.is_logistic:
            return follow_rows_logistic(
                once.feed(orders), self.optimizer, self.weights(), epochs=epochs
            )
        return follow_rows(
            once.feed(orders), self.optimizer, self.weights(), epochs=epochs, seed=self.seed
        )

    def measure(self, advance: Advance | None = None) -> Measured:
        """Return the rates of all cells on the recording, (cells,)."""
        return measure(self.follow(self.feed(), advance), self.level)

    def measure_orders(self, orders: Sequence[Order], advance: Advance | None = None) -> Measured:
        """Return the rates of the same rows in several orders, (orders,)."""
        found = []
        for first in range(0, len(orders), _TOGETHER):
            some = list(orders[first : first + _TOGETHER])
            filled = [*some, *[some[-1]] * (_TOGETHER - len(some))]
            passed = self.follow(self.feed(filled), advance)
            found.append(measure(passed, self.level)[: len(some)])
        return joined(found)

    def measure_rows(
        self, variants: Sequence[Callable[[], np.ndarray]], advance: Advance | None = None
    ) -> Measured:
        """Return the rates of several variants of the rows, which are made when needed.

        A variant may have the rows several times over; the targets come again with them.
        """
        found = []
        for first in range(0, len(variants), _TOGETHER):
            made = [variant() for variant in variants[first : first + _TOGETHER]]
            rows = np.stack([*made, *[made[-1]] * (_TOGETHER - len(made))], axis=-1)
            longest = max(
                float(np.sqrt(np.max(np.sum(self.model.apply(one) ** 2, axis=1)))) for one in made
            )
            outputs = self.recording.target if self.is_logistic else None
            feed = feed_of(
                self.model,
                lambda start, stop, rows=rows: rows[start:stop],
                len(rows),
                rows.shape[1],
                batch=self.batch,
                sequences=_TOGETHER,
                targets=None
                if outputs is None
                else lambda start, stop, y=outputs[: self.rows // self.epochs]: np.repeat(
                    y[np.arange(start, stop) % len(y), None], _TOGETHER, 1
                ),
                largest=longest,
                logistic=self.is_logistic,
            )
            found.append(measure(self.follow(feed, advance), self.level)[: len(made)])
        return joined(found)

    def train(self, orders: Sequence[Order] | None = None, advance: Advance | None = None) -> Pass:
        """Train the model itself, from zero weights, and keep residuals and sizes."""
        feed = self.feed(orders, target=True)
        if self.is_logistic:
            return self.follow(feed, advance)
        lanes = feed.sequences
        if orders is not None and lanes < _TOGETHER and is_small(feed):
            feed = self.feed([*orders, *[orders[-1]] * (_TOGETHER - lanes)], target=True)
        start = np.zeros(feed.size)
        start[-1] = 1.0
        weights = self.weights(target=True)
        found = walk(feed, self.optimizer, weights, start=start, record=True, advance=advance)
        return found if orders is None else found.first(lanes)

    def with_batch(self, batch: int) -> Subject:
        """Return the subject with another batch; a small model needs no other compiled loop."""
        small = self.model.size(self.recording.inputs.shape[1]) <= _MOST_FILLED
        return replace(self, batch=batch, filled=small)

    def enough(self, batch: int) -> bool:
        """Whether batches of this size leave enough steps to judge."""
        return self.rows // batch >= LEAST_STEPS


def prepare(
    recording: Recording,
    features: Features,
    optimizer: Momentum,
    batch: int = 1,
    epochs: int = 1,
    *,
    intercept_lr: float | None = None,
) -> Subject:
    """Return a problem on the rows of a recording; raise `ArgumentError` if they are too few."""
    rows = len(recording.inputs)
    need = LEAST_STEPS * batch
    if rows * epochs < need:
        raise ArgumentError(
            f"{recording.source} has {rows} rows, and a batch of {batch} needs at least {need}: "
            "use more rows" + (" or a smaller batch" if batch > 1 else "")
        )
    if 8 * batch > rows:
        raise ArgumentError(
            f"batch must be at most an eighth of the {rows} rows of {recording.source}, got {batch}"
        )
    if epochs > 1 and rows * epochs > MOST_ROWS:
        raise ArgumentError(
            f"epochs must be at most {max(1, MOST_ROWS // rows)} for the {rows} rows of "
            f"{recording.source}, got {epochs}"
        )
    size = features.size(recording.inputs.shape[1])
    if size > _MOST_WEIGHTS:
        raise ArgumentError(f"at most {_MOST_WEIGHTS} weights can be followed, got {size}")
    model = principal_axes(features, recording.inputs, intercept_lr)
    return Subject(optimizer, model, batch, recording=recording, epochs=epochs)
