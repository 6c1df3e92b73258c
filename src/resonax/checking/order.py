"""Orders of the rows of a recording: one in which an error grows most, and a safe one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.checking.arguments import Stage, build_optimizer, choose_basis, ignore_progress
from resonax.core.errors import ArgumentError
from resonax.core.objects import Result
from resonax.learners import Features, Momentum
from resonax.recordings.recording import Recording, read_recording
from resonax.rows.beam import beam_search, repeating_parts
from resonax.rows.feed import principal_axes
from resonax.rows.order_search import (
    Found,
    climb_permutation,
    search_permutation,
    search_words,
    swap_rows,
)
from resonax.rows.row_updates import RowUpdates
from resonax.rows.safe_orders import herded, pairwise_balanced, stratified
from resonax.spec.checks import check_numbers
from resonax.theory import OrderProof
from resonax.theory.common_norm import lifted_norm, quadratic_bound
from resonax.theory.order_proof import circle_norm, judge_every_order

if TYPE_CHECKING:
    from resonax.recordings.sources import Source, Values

__all__ = ["RowOrder", "order"]


ROUNDING = 1e-9  # rates closer to 0 than this are rounding


@dataclass(frozen=True, repr=False)
class RowOrder(Result):
    """An order of rows, how an error grows in it, and how much it could grow in any."""

    kind: str  # worst or safest
    name: str  # how the order was made
    rate: float  # growth per step where the order is repeated
    lower: float  # of the largest growth per step in any order with repetitions
    upper: float
    confirmed: bool  # whether training in this order grows at this rate
    trained: float  # the rate of that training
    compared: dict[str, float]  # the rates of other orders, by their names
    order_proof: OrderProof
    settings: dict[str, Any]
    rows: np.ndarray  # the order: numbers of the rows, from 0

    def summary(self) -> dict[str, Any]:
        """Return the rate, the bounds and how the order was made."""
        shown = {key: getattr(self, key) for key in ("kind", "name", "rate", "lower", "upper")}
        return {**shown, "confirmed": self.confirmed, "rows": len(self.rows)}

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the rates of this order, of the others, and the bounds of the largest."""
        rates = {f"{self.kind} found": self.rate, **self.compared}
        points = {name: (rate, rate, rate) for name, rate in rates.items()}
        return {**points, "largest in any order": (self.lower, self.lower, self.upper)}

    def __str__(self) -> str:
        """Return what was found in words, a line each."""
        word = "grows" if self.rate > ROUNDING else "falls" if self.rate < -ROUNDING else "stays"
        kind = "worst" if self.kind == "worst" else "safe"
        how = "confirmed" if self.confirmed else "not confirmed"
        # Only the search for the worst order looks for growth.
        most = "found" if self.kind == "worst" else "of the orders compared here"
        lines = [
            f"{kind} order found ({self.name}): repeated, the distance from the best weights "
            f"{word}, {self.rate:+.3g} per step, {how} by training",
            f"no order of these rows, repeated, grows by more than {self.upper:.3g} per step "
            f"(proved); the largest growth {most} is {self.lower:.3g}",
            self.order_proof.meaning("rows"),
        ]
        return "\n".join(lines)


_SHUFFLES = 16
_BLOCKS = (8, 32)  # rows of the blocks of a stratified order
_BEAM_STEPS = 300
_LONGEST_WORD = 120
_MAX_ROWS, _MAX_WEIGHTS = 20_000, 64
_WORD_ROWS = 1000  # that words are made of
_BEAM_ROWS = 1000  # of a permutation that a beam search is made for
_QUADRATIC, _QUARTIC = 16, 4  # largest state for which a norm of that degree is computed
_TRAINED = 40_000  # steps of the training that confirms
_RESCALE = 16  # steps of that after which the error is brought back to length 1
_TINY = np.finfo(float).tiny


def order(
    source: Source | Recording,
    target: str | int | Values | None = None,
    *,
    lr: float,
    momentum: float,
    kind: str = "worst",
    repeats: bool = False,
    optimizer: str | Momentum = "heavy_ball",
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    intercept_lr: float | None = None,
    basis: Features | Callable[[int], Features] | None = None,
    bias: bool = True,
    seed: int = 0,
    stage: Stage | None = None,
    **reading: Any,
) -> RowOrder:
    """Search an order of the rows in which an error grows much, or one in which it falls fast.

    The model is linear in its weights, with the squared error, one row in each step. The growth is
    that of the order repeated, one epoch after the other.

    Parameters
    ----------
    source, target
        Data as `check` takes them.
    lr, momentum, optimizer, dampening, weight_decay, intercept_lr, basis, bias
        The learner, as for `check`.
    kind
        ``worst``: the largest growth found, by cyclic orders, beam search and local improvement.
        ``safest``: the least of plain shuffles, stratified blocks, herded and pairwise balanced
        orders, and local improvement of the best of them, by exchanges and by swaps of two rows.
        It is a safe order, and not known to be the safest of all.
    repeats
        Whether a row may come again in the worst order; otherwise each comes once.
    seed
        Of shuffles and starts.
    stage
        ``stage(name, steps)`` gives a context in which progress is shown.
    **reading
        What `check` takes to read the data, such as ``order_by`` or ``standardise``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.normal(size=(12, 1))
    >>> found = order(rows, lr=0.02, momentum=0.95, repeats=True, bias=False)
    >>> found.rate > 0, found.confirmed, found.lower <= found.upper
    (True, True, True)
    """
    if kind not in ("worst", "safest"):
        raise ArgumentError(f"kind must be worst or safest, got {kind!r}")
    if repeats and kind == "safest":
        raise ArgumentError("repeats belongs to the worst order: the safest has each row once")
    check_numbers(
        optimizer,
        lr=lr,
        momentum=momentum,
        seed=seed,
        intercept_lr=intercept_lr,
        dampening=dampening,
        weight_decay=weight_decay,
    )
    chosen, intercept_lr, name = build_optimizer(
        optimizer, lr, momentum, intercept_lr, dampening=dampening, weight_decay=weight_decay
    )
    recording = source
    if not isinstance(recording, Recording):
        recording = read_recording(recording, target, **reading)
    model, intercept_lr = choose_basis(basis, bias, recording, intercept_lr)
    search = _Search.of(recording, model, chosen, intercept_lr, seed, stage or ignore_progress)
    found, how, compared = search.safest() if kind == "safest" else search.worst(repeats)
    trained, steps = search.train(found.word)
    lower = max(found.rate, *compared.values(), search.single)
    upper = max(search.upper(lower), lower)
    settings = asdict(chosen) | {"optimizer": name, "intercept_lr": intercept_lr, "seed": seed}
    settings = {key: settings[key] for key in sorted(settings) if key != "full_start"}
    return RowOrder(
        kind,
        how,
        found.rate,
        lower,
        upper,
        abs(trained - found.rate) < 8 / steps and (trained > 0) == (found.rate > 0),
        trained,
        compared,
        search.proof,
        settings,
        found.word,
    )


@dataclass(frozen=True)
class _Search:
    """The rows, the learner, and what holds for all orders."""

    updates: RowUpdates
    optimizer: Momentum
    proof: OrderProof
    seed: int
    stage: Stage

    @classmethod
    def of(
        cls,
        recording: Recording,
        basis: Features,
        optimizer: Momentum,
        intercept_lr: float | None,
        seed: int,
        stage: Stage,
    ) -> _Search:
        count = len(recording.inputs)
        if not 2 <= count <= _MAX_ROWS:
            raise ArgumentError(
                f"orders of 2 to {_MAX_ROWS:,} rows can be searched, and {recording.source} has "
                f"{count:,}: use some of them"
            )
        model = principal_axes(basis, recording.inputs, intercept_lr)
        if model.basis.shape[1] > _MAX_WEIGHTS:
            raise ArgumentError(
                f"orders for at most {_MAX_WEIGHTS} weights can be searched, got "
                f"{model.basis.shape[1]}: use fewer columns"
            )
        features = np.asarray(model.apply(recording.inputs), dtype=float)
        proof = judge_every_order(optimizer, 2 * model.largest**2, intercept_lr)
        return cls(RowUpdates.of(features, optimizer, intercept_lr), optimizer, proof, seed, stage)

    @property
    def count(self) -> int:
        return len(self.updates.rows)

    @property
    def single(self) -> float:
        """The largest growth of a row that comes again and again; 0 up to rounding, or more."""
        found = float(self.updates.rates(np.arange(self.count)[:, None]).max())
        return 0.0 if abs(found) < ROUNDING else found

    def _plain(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        shuffles = np.array([rng.permutation(self.count) for _ in range(_SHUFFLES)])
        return {"as recorded": np.arange(self.count)[None], "shuffled": shuffles}

    def worst(self, repeats: bool) -> tuple[Found, str, dict[str, float]]:
        """Return the word or permutation that grows most, and the rates of plain orders."""
        rng = np.random.default_rng(self.seed)
        compared = {
            name: float(self.updates.rates(orders).mean())
            for name, orders in self._plain(rng).items()
        }
        assert self.proof.curvature is not None
        norm, _ = circle_norm(self.optimizer, self.proof.curvature)
        if repeats:
            some = self._some_rows(rng)
            updates = replace(self.updates, rows=self.updates.rows[some])
            with self.stage("beam search", 0):
                path = beam_search(updates, norm, _BEAM_STEPS, seed=self.seed)
                parts = repeating_parts(updates, path[len(path) // 4 :], _LONGEST_WORD)
            with self.stage("improving words", 0) as advance:
                found = search_words(updates, parts, advance)
            copies = max(1, self.count // len(found.word))
            how = f"a word of {len(found.word)} rows"
            return Found(some[np.tile(found.word, copies)], found.rate), how, compared
        seeds = [np.arange(self.count)]
        if self.count <= _BEAM_ROWS:
            with self.stage("beam search", 0):
                seeds.append(
                    beam_search(self.updates, norm, self.count, repeats=False, seed=self.seed)
                )
        with self.stage("exchanging rows", 0) as advance:
            found = search_permutation(self.updates, seeds, rng, advance)
        return found, "each row once", compared

    def _some_rows(self, rng: np.random.Generator) -> np.ndarray:
        """Return all rows, or of many the longest ones and others at random."""
        if self.count <= _WORD_ROWS:
            return np.arange(self.count)
        longest = np.argsort(np.sum(self.updates.rows**2, axis=1))[::-1]
        half = _WORD_ROWS // 2
        return np.concatenate([longest[:half], rng.permutation(longest[half:])[:half]])

    def safest(self) -> tuple[Found, str, dict[str, float]]:
        """Return the order of least growth found, how it was made, and the rates of all kinds."""
        rng = np.random.default_rng(self.seed)
        rows = self.updates.rows
        with self.stage("balancing rows", 0):
            made = self._plain(rng)
            for block in _BLOCKS:
                if 2 * block <= self.count:
                    drawn = [stratified(rows, block, rng) for _ in range(_SHUFFLES)]
                    made[f"stratified blocks of {block}"] = np.array(drawn)
            made["herded"] = np.array([herded(rows, rng) for _ in range(4)])
            made["pairwise balanced"] = np.array([pairwise_balanced(rows, rng) for _ in range(4)])
            rates = {name: self.updates.rates(orders) for name, orders in made.items()}
        compared = {name: float(found.mean()) for name, found in rates.items()}
        best = min(rates, key=lambda name: rates[name].min())
        found = Found(made[best][rates[best].argmin()], float(rates[best].min()))
        with self.stage("exchanging rows", 0) as advance:
            better = climb_permutation(self.updates, found.word, rng, sign=-1.0, advance=advance)
            better = swap_rows(self.updates, better.word, rng, sign=-1.0, advance=advance)
        if better.rate < found.rate - ROUNDING:
            return better, f"{best}, rows exchanged", compared
        return found, best, compared

    def train(self, word: np.ndarray) -> tuple[float, int]:
        """Train in an order, again and again; return the growth per step, and over how many."""
        updates, rng = self.updates, np.random.default_rng([self.seed, 1])
        weights, velocity = rng.normal(size=updates.size), np.zeros(updates.size)
        epochs = max(4, _TRAINED // len(word))
        momentum, alpha, kappa = updates.momentum, updates.alpha, updates.kappa
        decay, beta = (part if part.any() else None for part in (updates.decay, updates.beta))
        rows = list(updates.rows[word])
        parts = [rows[first : first + _RESCALE] for first in range(0, len(rows), _RESCALE)]
        log, logs = 0.0, []
        for _ in range(epochs):
            for part in parts:
                for row in part:
                    gradient = row * row.dot(weights)
                    if decay is not None:
                        gradient = gradient + decay * weights
                    velocity = momentum * velocity - alpha * gradient
                    weights = weights + kappa * velocity
                    if beta is not None:
                        weights = weights - beta * gradient
                lengths = np.linalg.norm(weights), np.linalg.norm(velocity)
                size = max(float(np.hypot(*lengths)), _TINY)
                weights, velocity, log = weights / size, velocity / size, log + np.log(size)
            logs.append(log)
        half = epochs // 2
        steps = (epochs - half) * len(word)
        return float(logs[-1] - logs[half - 1]) / steps, steps

    def upper(self, lower: float) -> float:
        """Return an upper bound of the growth per step in any order."""
        assert self.proof.rate is not None
        assert self.proof.curvature is not None
        bound, state = self.proof.rate, 2 * self.updates.size
        if bound <= lower + ROUNDING or state > _QUADRATIC:
            return bound
        norm, _ = circle_norm(self.optimizer, self.proof.curvature)
        start = np.kron(norm, np.eye(self.updates.size))
        with self.stage("bounding every order", 0):
            for degree in (1, 2) if state <= _QUARTIC else (1,):
                lifted = lifted_norm(start, degree)
                found, _ = quadratic_bound(self.updates.matrices, self.count, lifted, degree)
                bound = min(bound, found)
        return bound
