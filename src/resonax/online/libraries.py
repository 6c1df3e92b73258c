"""How models of river and scikit-learn learn, what they lose, and where their numbers are."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.guards.learner import Candidate
from resonax.probing.adapters import check_reach, library_of

__all__ = ["Knobs", "Library", "Paths", "find_library"]

Paths = tuple[str, ...]

_LEAST = 1e-6  # least probability, so that one surprise does not outweigh all rows
_RIVER_MOMENTA = {"Momentum": "rho", "NesterovMomentum": "rho"}  # elsewhere rho is of squares


def _part(thing: Any, name: str) -> Any:
    return thing[name] if isinstance(thing, Mapping) else getattr(thing, name)


def _read_path(model: Any, path: str) -> Any:
    """Return the attribute of a path such as ``steps.last.rho``; a name in a mapping is its key."""
    for name in path.split("."):
        model = _part(model, name)
    return model


def _write_path(model: Any, path: str, value: Any) -> None:
    """Change the attribute of a path."""
    *names, last = path.split(".")
    for name in names:
        model = _part(model, name)
    setattr(model, last, value)


@dataclass(frozen=True)
class _Scaled:
    """A schedule of river, times a factor."""

    schedule: Any
    factor: float

    def get(self, step: int) -> float:
        return self.factor * self.schedule.get(step)


def _times(own: Any, factor: float) -> Any:
    return own * factor if isinstance(own, Real) else _Scaled(own, factor)


@dataclass(frozen=True)
class Knobs:
    """Where a model has its momentum and its step size: paths of which some may not exist yet."""

    momentum: Paths = ()
    lr: Paths = ()

    def read(self, model: Any) -> dict[str, Any]:
        """Return the numbers as they are now."""
        found = {}
        for path in (*self.momentum, *self.lr):
            try:
                found[path] = _read_path(model, path)
            except (AttributeError, KeyError):
                continue
        return found

    def checked(self, model: Any) -> Knobs:
        """Return them, or raise `ArgumentError` for a name that the model does not have."""
        found = self.read(model)
        for what, paths in (("knob", self.momentum), ("lr", self.lr)):
            if paths and not set(paths) & set(found):
                raise ArgumentError(
                    f"{what} must name a number of the model, such as 'optimizer.rho'; "
                    f"it has no {paths[0]!r}"
                )
        return self

    def largest_momentum(self, model: Any) -> float:
        """Return the largest momentum; 0 for a model without one."""
        found = self.read(model)
        return max((float(found[path]) for path in self.momentum if path in found), default=0.0)

    def changed(self, own: dict[str, Any], candidate: Candidate) -> dict[str, Any]:
        """Return what a candidate makes of the user's own numbers."""
        made = {path: min(own[path], candidate.momentum) for path in self.momentum if path in own}
        if candidate.lr != 1:
            made |= {path: _times(own[path], candidate.lr) for path in self.lr if path in own}
        return own | made

    @contextlib.contextmanager
    def in_force(self, model: Any, own: dict[str, Any], candidate: Candidate) -> Iterator[None]:
        """Give the model a candidate's numbers; afterwards they are the user's own again.

        A number that the model has changed meanwhile, as a schedule does, is left as it is.
        """
        now, wanted = self.read(model), self.changed(own, candidate)
        for path, value in wanted.items():
            if path in now and now[path] is not value:
                _write_path(model, path, value)
        try:
            yield
        finally:
            now = self.read(model)
            for paths in (self.momentum, self.lr):
                held = [path for path in paths if path in own]
                for path in paths:
                    like = path if path in own else next(iter(held), path)  # of one made meanwhile
                    if like in own and own[like] is not wanted[like] is now.get(path):
                        _write_path(model, path, own[like])


class Library(NamedTuple):
    """How a model learns a batch and what its mean loss on one is.

    ``has_random`` tells whether it may draw from NumPy's global random numbers.
    """

    learn: Callable[..., Any]
    loss: Callable[..., float]
    knobs: Knobs
    has_random: bool


def find_library(model: Any) -> Library | None:
    """Return how to train and judge a model of a known library; None for others."""
    library = library_of(model)
    if library == "river":
        loss = _river_log_loss if _is_river_classifier(model) else _river_squared
        return Library(_learn_one, loss, _river_knobs(model), has_random=False)
    if library == "sklearn":
        return Library(_partial_fit, _sklearn_loss(model), _sklearn_knobs(model), has_random=True)
    return None


def _learn_one(model: Any, *batch: Any, **options: Any) -> None:
    model.learn_one(*batch, **options)


def _partial_fit(model: Any, *batch: Any, **options: Any) -> None:
    model.partial_fit(*batch, **options)


def _river_squared(model: Any, x: Any, y: Any) -> float:
    given = float(model.predict_one(x) or 0.0)
    check_reach(given, y)
    return (given - y) ** 2


def _river_log_loss(model: Any, x: Any, y: Any) -> float:
    probabilities = model.predict_proba_one(x) or {}
    missing = 0.0 if probabilities else 0.5  # nothing is learnt yet
    return -math.log(max(probabilities.get(y, missing), _LEAST))


def _is_river_classifier(model: Any) -> bool:
    from river import base

    steps = getattr(model, "steps", None)
    last = list(steps.values())[-1] if isinstance(steps, Mapping) and steps else model
    return isinstance(last, base.Classifier)


def _river_knobs(model: Any) -> Knobs:
    found = list(_parts(model, "", set()))
    momenta = [
        path + name
        for path, part in found
        if _is_optimizer(part)
        for name in (_RIVER_MOMENTA.get(type(part).__name__, "beta_1"),)
        if hasattr(part, name)
    ]
    steps = [path + "lr" for path, part in found if _is_optimizer(part) and hasattr(part, "lr")]
    steps += [path + "intercept_lr" for path, part in found if hasattr(part, "intercept_lr")]
    return Knobs(tuple(momenta), tuple(steps))


def _is_optimizer(part: Any) -> bool:
    return type(part).__module__.startswith("river.optim") and hasattr(part, "learning_rate")


def _parts(thing: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Find a model's parts that are of river, with the path to each."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, Mapping):
        held = {key: part for key, part in thing.items() if isinstance(key, str)}
    elif any(base.__module__.split(".")[0] == "river" for base in type(thing).__mro__):
        yield path, thing
        held = getattr(thing, "__dict__", {})
    else:
        return
    for name, part in held.items():
        yield from _parts(part, f"{path}{name}.", seen)


def _sklearn_knobs(model: Any) -> Knobs:
    """Return the numbers of a model, and of the optimizer that a network makes on its first row."""
    if hasattr(model, "learning_rate_init"):
        if getattr(model, "solver", "") == "adam":
            paths = ("learning_rate_init", "_optimizer.learning_rate_init")
            return Knobs(("beta_1", "_optimizer.beta_1"), paths)
        paths = ("learning_rate_init", "_optimizer.learning_rate")
        return Knobs(("momentum", "_optimizer.momentum"), paths)
    is_used = hasattr(model, "eta0") and getattr(model, "learning_rate", "") != "optimal"
    return Knobs((), ("eta0",) if is_used else ())


def _is_fitted(model: Any) -> bool:
    return any(name.endswith("_") and not name.startswith("_") for name in vars(model))


def _sklearn_loss(model: Any) -> Callable[..., float]:
    if hasattr(model, "predict_proba"):
        return _sklearn_log_loss
    return _sklearn_hinge if hasattr(model, "decision_function") else _sklearn_squared


def _sklearn_squared(model: Any, x: Any, y: Any) -> float:
    given = np.asarray(model.predict(x), float) if _is_fitted(model) else np.zeros(np.shape(y))
    wanted = np.asarray(y, float).reshape(given.shape)
    check_reach(given, wanted)
    return float(np.mean((given - wanted) ** 2))


def _sklearn_log_loss(model: Any, x: Any, y: Any) -> float:
    if not _is_fitted(model):
        return math.log(2)
    hits = np.asarray(y)[:, None] == model.classes_
    chosen = np.sum(np.where(hits, model.predict_proba(x), 0.0), axis=1)
    return float(-np.mean(np.log(np.maximum(chosen, _LEAST))))


def _sklearn_hinge(model: Any, x: Any, y: Any) -> float:
    if not _is_fitted(model):
        return 1.0
    scores = np.asarray(model.decision_function(x), float)
    if scores.ndim == 1:
        scores = scores[:, None]
    classes = model.classes_[-scores.shape[1] :]  # of two, the second is the positive one
    signs = np.where(np.asarray(y)[:, None] == classes, 1.0, -1.0)
    return float(np.mean(np.maximum(0.0, 1 - signs * scores)))
