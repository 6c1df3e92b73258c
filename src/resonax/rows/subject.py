"""A problem whose inputs are the rows of a recording, and the growth of the error along them."""

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
from resonax.rows.intervals import MAX_ROWS, MIN_STEPS, Pass, Rates, concatenate, measure
from resonax.rows.logistic import BOUND, follow_rows_logistic, run_pass_logistic
from resonax.rows.recursion import WeightRules, is_small, run_pass
from resonax.streams import Recorded

__all__ = ["Advance", "Order", "Subject", "prepare"]

Advance = Callable[[int], None]
Order = np.ndarray  # indices of rows, one for each row that is trained on

_MAX_WEIGHTS = 2000
_MAX_PADDED = 64  # weights up to which padding batches by zeros is faster than to compile again
_SEQUENCES = 16  # sequences of rows in one pass, filled up so that all passes share a compiled loop


@dataclass(frozen=True)
class Subject(Problem):
    """A problem whose inputs are the rows of a recording, in their order."""

    process: Recorded = field(init=False)  # the rows of the recording
    optimizer: Momentum  # its hyperparameters may be arrays, one entry for each cell
    model: Principal = field()
    batch: int = 1
    _: KW_ONLY
    recording: Recording
    epochs: int = 1
    confidence: float = 0.95
    seed: int = 0
    is_padded: bool = False  # batches of all sizes are padded to share one compiled loop
    loss: str = "squared"  # or "logistic"

    def __post_init__(self) -> None:
        rows = Recorded(self.recording.inputs[:, None], repeat=self.epochs > 1)
        object.__setattr__(self, "process", rows)
        super().__post_init__()
        if self.reduction != "mean":
            raise ArgumentError("along a recording gradients are averaged over the batch")

    @property
    def rows(self) -> int:
        """Number of rows in all epochs, without incomplete last batches."""
        return len(self.recording.inputs) // self.batch * self.batch * self.epochs

    @property
    def steps(self) -> int:
        """Number of updates in all epochs."""
        return self.rows // self.batch

    def weight_rules(self, *, target: bool = False) -> WeightRules:
        """Return how each weight is updated."""
        # The curvature of the model is that of the squared error, 2 E[phi phi^T].
        share = BOUND / 2 if self.is_logistic else 1.0
        return WeightRules.of(share * self.model.curvature, self.model.intercept_lr, target=target)

    @property
    def is_logistic(self) -> bool:
        """Whether the target is a class."""
        return self.loss == "logistic"

    def with_largest_curvature(self) -> Subject:
        """Return the linear problem with the largest curvature that the logistic loss can have.

        It is that of zero weights, an eighth of the curvature of the squared error: the problem has
        the squared error, and an eighth of the step size.
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
        """Return the rows in their own order, or in several others as sequences."""
        inputs, outputs = self.recording.inputs, self.recording.target
        target = target or self.is_logistic
        rows = self.rows if orders is None else len(orders[0])
        largest = self.model.largest
        if target:
            assert outputs is not None
            largest = float(np.hypot(largest, np.abs(outputs).max()))

        rows_per_epoch = self.rows // self.epochs

        def indices(first: int, last: int) -> np.ndarray:
            if orders is None:
                return (np.arange(first, last) % rows_per_epoch)[:, None]
            return np.stack([order[first:last] for order in orders], axis=1)

        def fetch(first: int, last: int) -> np.ndarray:
            start, stop = first % rows_per_epoch, (last - 1) % rows_per_epoch + 1
            if orders is None and stop - start == last - first:
                return inputs[start:stop, :, None]  # a slice: reading by indices is slow on disk
            return np.moveaxis(inputs[indices(first, last)], 1, -1)

        def targets(first: int, last: int) -> np.ndarray:
            assert outputs is not None
            return outputs[indices(first, last)]

        return feed_of(
            self.model,
            fetch,
            rows,
            inputs.shape[1],
            batch=self.batch,
            sequences=1 if orders is None else len(orders),
            targets=targets if target else None,
            rank=self.model.size(inputs.shape[1]) + target if self.is_padded else None,
            largest=largest,
            is_logistic=self.is_logistic,
        )

    def follow(self, feed: Feed, advance: Advance | None = None) -> Pass:
        """Follow the difference between two runs over a feed."""
        follow = run_pass_logistic if self.is_logistic else run_pass
        return follow(feed, self.optimizer, self.weight_rules(), seed=self.seed, advance=advance)

    def follow_exactly(self, order: Order | None = None) -> Exact:
        """Follow an error from all initial weights, over the rows in their own or another order."""
        orders = None if order is None else [order]
        once = replace(self, epochs=1 if order is None else self.epochs)
        epochs = self.epochs if order is None else 1
        if self.is_logistic:
            return follow_rows_logistic(
                once.feed(orders), self.optimizer, self.weight_rules(), epochs=epochs
            )
        return follow_rows(
            once.feed(orders), self.optimizer, self.weight_rules(), epochs=epochs, seed=self.seed
        )

    def measure(self, advance: Advance | None = None) -> Rates:
        """Return the rates of all cells on the recording, (cells,)."""
        return measure(self.follow(self.feed(), advance), self.confidence)

    def measure_orders(self, orders: Sequence[Order], advance: Advance | None = None) -> Rates:
        """Return the rates of the same rows in several orders, (orders,)."""
        found = []
        for first in range(0, len(orders), _SEQUENCES):
            some = orders[first : first + _SEQUENCES]
            result = self.follow(self.feed(_fill_up(some)), advance)
            found.append(measure(result, self.confidence)[: len(some)])
        return concatenate(found)

    def measure_rows(
        self, variants: Sequence[Callable[[], np.ndarray]], advance: Advance | None = None
    ) -> Rates:
        """Return the rates of several variants of the rows, (variants,).

        Each variant is a function that returns rows, which may be the recording several times over;
        the targets are then repeated with them.
        """
        found = []
        for first in range(0, len(variants), _SEQUENCES):
            made = [variant() for variant in variants[first : first + _SEQUENCES]]
            feed = self._feed_of_variants(made)
            found.append(measure(self.follow(feed, advance), self.confidence)[: len(made)])
        return concatenate(found)

    def _feed_of_variants(self, variants: Sequence[np.ndarray]) -> Feed:
        rows = np.stack(_fill_up(variants), axis=-1)

        def targets(first: int, last: int) -> np.ndarray:
            assert self.recording.target is not None
            target = self.recording.target[: self.rows // self.epochs]
            part = target[np.arange(first, last) % len(target)]
            return np.repeat(part[:, None], _SEQUENCES, axis=1)

        largest = max(
            float(np.sqrt(np.max(np.sum(self.model.apply(one) ** 2, axis=1)))) for one in variants
        )
        return feed_of(
            self.model,
            lambda first, last: rows[first:last],
            len(rows),
            rows.shape[1],
            batch=self.batch,
            sequences=_SEQUENCES,
            targets=targets if self.is_logistic else None,
            largest=largest,
            is_logistic=self.is_logistic,
        )

    def train(self, orders: Sequence[Order] | None = None, advance: Advance | None = None) -> Pass:
        """Train the model from zero weights, and record its loss and the norm of its weights."""
        feed = self.feed(orders, target=True)
        if self.is_logistic:
            return self.follow(feed, advance)
        if orders is not None and len(orders) < _SEQUENCES and is_small(feed):
            feed = self.feed(_fill_up(orders), target=True)
        start = np.zeros(feed.size)
        start[-1] = 1.0  # multiplies the target
        rules = self.weight_rules(target=True)
        result = run_pass(
            feed, self.optimizer, rules, start=start, is_training=True, advance=advance
        )
        return result if orders is None else result.first(len(orders))

    def with_batch(self, batch: int) -> Subject:
        """Return the subject with another batch; small models share a compiled loop for all."""
        is_small_model = self.model.size(self.recording.inputs.shape[1]) <= _MAX_PADDED
        return replace(self, batch=batch, is_padded=is_small_model)

    def has_enough_steps(self, batch: int) -> bool:
        """Return whether batches of this size leave enough steps to judge."""
        return self.rows // batch >= MIN_STEPS


def _fill_up(sequences: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the sequences, with the last one repeated up to `_SEQUENCES`."""
    return [*sequences, *[sequences[-1]] * (_SEQUENCES - len(sequences))]


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
    need = MIN_STEPS * batch
    if rows * epochs < need:
        raise ArgumentError(
            f"{recording.source} has {rows} rows: at least {need} are needed"
            + (
                f" with a batch of {batch}, so use more rows or a smaller batch"
                if batch > 1
                else ""
            )
        )
    if 8 * batch > rows:
        raise ArgumentError(
            f"batch must be at most an eighth of the {rows} rows of {recording.source}, got {batch}"
        )
    if epochs > 1 and rows * epochs > MAX_ROWS:
        raise ArgumentError(
            f"epochs must be at most {max(1, MAX_ROWS // rows)} for the {rows} rows of "
            f"{recording.source}, got {epochs}"
        )
    size = features.size(recording.inputs.shape[1])
    if size > _MAX_WEIGHTS:
        raise ArgumentError(f"at most {_MAX_WEIGHTS} weights can be followed, got {size}")
    model = principal_axes(features, recording.inputs, intercept_lr)
    return Subject(optimizer, model, batch, recording=recording, epochs=epochs)
