"""The problem: who learns what from which inputs. Theory, simulation and recordings extend it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Self

import numpy as np

from resonax.core.errors import RANGES, ArgumentError, check_range, shorten, suggest
from resonax.core.values import Varied, static, value
from resonax.learners import Features, Linear, Network, Optimizer, check_optimizer
from resonax.streams import Process

__all__ = ["Problem", "check_choice", "check_problem"]


@value
class Problem(Varied):
    r"""A model trained by an optimizer on inputs of a process, ``batch`` of them in each step.

    The loss is the squared error, without a factor 1/2. A linear model, given by its features,
    learns :math:`y = \langle\theta^*,\phi(x)\rangle + \epsilon` with
    :math:`\operatorname{Var}\epsilon =` ``noise``. Gradients are averaged over the batch, or added
    up with ``reduction="sum"``.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> problem = Problem(Sinusoid(period=22.0), heavy_ball(lr=0.01, momentum=0.97))
    >>> problem.axes
    ('lr', 'momentum', 'dampening', 'weight_decay', 'period', 'amplitude', 'variance', 'swing',
     'phase', 'batch', 'noise')
    >>> problem.at({"period": 30.0, "lr": 0.1}).process.period
    30.0
    """

    process: Process
    optimizer: Optimizer
    model: Features | Network = Linear()
    batch: float = 1
    noise: float = 0.0
    reduction: str = static(default="mean")

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
        return (*self.optimizer.axes, *self.process.axes, *super().axes)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the problem with some of its numbers replaced, by the names of `axes`."""
        changes: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {"optimizer": {}, "process": {}}
        for name, number in values.items():
            home = next((part for part in parts if name in getattr(self, part).axes), None)
            if home is not None:
                parts[home][name] = number
            elif name in super().axes:
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
