"""The problem: who learns what from which inputs. Theory, simulation and recordings extend it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import field, fields, is_dataclass, replace
from typing import Any, Self

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.errors import (
    RANGES,
    ArgumentError,
    as_array,
    check_numbers,
    check_range,
    shorten,
    suggest,
)
from resonax.core.values import Varied, static, value
from resonax.learners import Features, Linear, Network, Omitted, Optimizer, check_optimizer
from resonax.streams import Process
from resonax.streams.base import unit_direction

__all__ = ["Problem", "check_choice", "check_problem"]


@value
class Problem(Varied):
    r"""A model trained by an optimizer on inputs of a process, ``batch`` of them in each step.

    The loss is the squared error, without a factor 1/2. A linear model, given by its features,
    learns :math:`y = \langle\theta^*,\phi(x)\rangle + \epsilon` with
    :math:`\operatorname{Var}\epsilon =` ``noise``. Gradients are averaged over the batch, or added
    up with ``reduction="sum"``.

    The best weights may move with the inputs. With a ``drift`` (concept drift) they are
    :math:`\theta^*_k = \theta^* + d\,z_k\,u`, where :math:`z_k` is the signal that moves the inputs
    (the wave of a sinusoid or a square wave, :math:`z` of AR(2), the first drawn number of
    switching) and :math:`u` is ``drift_direction`` at length 1, by default the first weight. An
    ``omitted`` part of the target is one that the features cannot fit: `Omitted`.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> problem = Problem(Sinusoid(period=22.0), heavy_ball(lr=0.01, momentum=0.97))
    >>> problem.axes
    ('lr', 'momentum', 'dampening', 'weight_decay', 'period', 'amplitude', 'variance', 'swing',
     'phase', 'batch', 'noise', 'drift')
    >>> problem.at({"period": 30.0, "lr": 0.1}).process.period
    30.0
    """

    process: Process
    optimizer: Optimizer
    model: Features | Network = Linear()
    batch: float = 1
    noise: float = 0.0
    reduction: str = static(default="mean")
    drift: float = field(default=0.0, kw_only=True)
    drift_direction: ArrayLike | None = field(default=None, kw_only=True)
    omitted: Omitted | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.process, Process):
            raise ArgumentError(
                f"process must be a Process like Sinusoid(period=22), got {shorten(self.process)}"
            )
        check_optimizer(self.optimizer)
        if not isinstance(self.model, Features | Network):
            raise ArgumentError(
                f"model must be features like Linear() or a Network, got {shorten(self.model)}"
            )
        for name in super().axes:
            check_range(name, getattr(self, name))
        if isinstance(self.batch, float) and self.batch != int(self.batch):
            raise ArgumentError(f"batch must be a whole number, got {self.batch:g}")
        check_choice("reduction", self.reduction, ("mean", "sum"))
        if not hasattr(self.drift, "aval"):  # not inside compiled code
            self._check_target()

    def _check_target(self) -> None:
        """Check what moves the target: drift, its direction and what is omitted."""
        if not self.is_driven and self.drift_direction is None:
            return
        if isinstance(self.model, Network):
            raise ArgumentError("a network has a fixed target: leave drift and omitted out")
        if self.drift and not self.process.signalled:
            raise ArgumentError(
                f"drift needs inputs that move, as those of sinusoid, square, ar2 and switching "
                f"do, got {self.process.name}"
            )
        if self.drift_direction is not None and not hasattr(self.drift_direction, "aval"):
            direction = as_array("drift_direction", self.drift_direction)
            if direction.shape != (self.size,) or not direction.any():
                raise ArgumentError(
                    f"drift_direction must be {self.size} numbers, one for each weight, not all 0"
                )
            check_numbers("drift_direction", direction, direction.shape)
        if self.omitted is None:
            return
        if not isinstance(self.omitted, Omitted):
            raise ArgumentError(
                "omitted must be an Omitted like Omitted.of(Polynomial(2), [0, 0, 1]), "
                f"got {shorten(self.omitted)}"
            )
        wanted = self.omitted.features.size(self.process.dim)
        if np.shape(self.omitted.weights) != (wanted,):
            raise ArgumentError(
                f"omitted must have {wanted} weights, one for each of its features, "
                f"got {np.size(np.asarray(self.omitted.weights))}"
            )

    @property
    def is_driven(self) -> bool:
        """Whether the best weights move with the inputs."""
        return self.omitted is not None or bool(np.any(np.asarray(self.drift)))

    def motion(self, signals: Array) -> Array:
        """Return how far the drift has moved the best weights at some signals, (..., size)."""
        return self.drift * signals[..., None] * unit_direction(self.drift_direction, self.size)

    @classmethod
    def of(cls, problem: Problem, **rest: Any) -> Self:
        """Return the same problem for another use: what every problem has, and the ``rest``."""
        shared = {item.name: getattr(problem, item.name) for item in fields(Problem)}
        return cls(**(shared | rest))

    @property
    def size(self) -> int:
        """Number of weights of a linear model."""
        if isinstance(self.model, Network):
            raise ArgumentError("a network has no weights in common with its target")
        return self.model.size(self.process.dim)

    @property
    def gradient_scale(self) -> float:
        """Factor of the mean gradient: 1, or the size of the batch for their sum."""
        return self.batch if self.reduction == "sum" else 1.0

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the numbers that may vary: of the optimizer, of the process and its own."""
        own = super().axes
        if not self.process.signalled:  # a drift follows inputs that move
            own = tuple(name for name in own if name != "drift")
        return (*self.optimizer.axes, *self.process.axes, *own)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the problem with some of its numbers replaced, by the names of `axes`."""
        changes: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {"optimizer": {}, "process": {}}
        for name, number in values.items():
            home = next((part for part in parts if name in getattr(self, part).axes), None)
            if home is not None:
                parts[home][name] = number
            elif name in self.axes:
                changes[name] = number
            elif name in RANGES:
                raise ArgumentError(
                    f"{name} cannot vary: neither the process {self.process.name} nor the "
                    "optimizer has it"
                )
            else:
                raise suggest("axis", name, self.axes)
        for part, given in parts.items():
            if given:
                changes[part] = getattr(self, part).at(given)
        return replace(self, **changes)

    def scope(self) -> str:
        """Return in words which model, loss and batch this is about.

        Examples
        --------
        >>> from resonax import Sinusoid, heavy_ball
        >>> Problem(Sinusoid(period=22.0), heavy_ball(lr=0.01, momentum=0.97), batch=20).scope()
        'a linear model with the squared error and 20 samples per step'
        """
        name, count = type(self.model).__name__, int(self.batch)
        model = {"Linear": "a linear model", "Network": "a network"}.get(
            name, f"a linear model of {name} features"
        )
        samples = "1 sample" if count == 1 else f"{count:,} samples"
        return f"{model} with the squared error and {samples} per step"

    def describe(self) -> dict[str, Any]:
        """Return names and numbers as plain values, for the record of a result."""
        return _plain(self)


def check_problem(given: object, kind: type[Problem]) -> None:
    """Raise `ArgumentError` unless a problem is of the kind that a function is for.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, Training, heavy_ball
    >>> check_problem(Training(Sinusoid(period=22.0), heavy_ball(0.01, 0.97)), Setting)
    Traceback (most recent call last):
    resonax.ArgumentError: a Setting is needed, got a Training: Setting.of makes one of it
    """
    if isinstance(given, kind):
        return
    got = shorten(given)
    if isinstance(given, Problem):
        kind.of(given)  # which says why, where none can be made of it
        got = f"a {type(given).__name__}: {kind.__name__}.of makes one of it"
    raise ArgumentError(f"a {kind.__name__} is needed, got {got}")


def check_choice(name: str, word: str, choices: tuple[str, ...]) -> None:
    """Raise `ArgumentError` unless a word is one of those allowed."""
    if word not in choices:
        raise ArgumentError(f"{name} must be one of {', '.join(choices)}, got {word!r}")


def _plain(thing: Any) -> Any:
    if is_dataclass(thing):
        inner = {item.name: _plain(getattr(thing, item.name)) for item in fields(thing)}
        return {"kind": type(thing).__name__, **inner}
    if thing is None or isinstance(thing, str | bool):
        return thing
    if isinstance(thing, Mapping):
        return {name: _plain(part) for name, part in thing.items()}
    if callable(thing):  # what makes an optimizer
        return getattr(getattr(thing, "func", thing), "__name__", "function")
    array = np.asarray(thing)
    if array.size > 64:
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return f"array of shape {array.shape}, sha256 {digest}"
    return array.tolist()
