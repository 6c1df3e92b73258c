"""How models of river and scikit-learn learn, what they lose, and where their numbers are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from resonax.online.knobs import Knobs
from resonax.probing.adapters import check_reach, library_of

__all__ = ["Library", "find_library"]

_LEAST = 1e-6  # least probability, so that one surprise does not outweigh all rows
_RIVER_MOMENTA = {"Momentum": "rho", "NesterovMomentum": "rho"}  # elsewhere rho is of squares


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
