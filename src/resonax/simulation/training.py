"""What is simulated: who learns what from which stream, beginning where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Protocol

import optax
from jax.typing import ArrayLike

from resonax.checks import ArgumentError, check_range, check_whole, suggest
from resonax.learners import Features, Linear, Momentum
from resonax.processes import Process
from resonax.values import static, value

__all__ = ["Network", "Optimizer", "Training", "Transform", "adam", "axes_of"]


class Optimizer(Protocol):
    """Anything that gives an optax transform."""

    def transform(self) -> optax.GradientTransformation:
        """Return the transform for gradients of the loss."""
        ...


_SHORT = {"lr": "learning_rate", "beta1": "b1", "beta2": "b2"}  # our words for optax's


@value
class Transform:
    """Any optax optimizer: the function that makes it, and its numbers by their optax names.

    Examples
    --------
    >>> Transform({"learning_rate": 0.01, "decay": 0.9}, optax.rmsprop).transform().init(0.0)
    (ScaleByRmsState(nu=Array(0., dtype=float32...)), ...)
    """

    numbers: Mapping[str, ArrayLike]
    make: Callable[..., optax.GradientTransformation] = static(default=optax.sgd)

    @classmethod
    def of(
        cls, make: Callable[..., optax.GradientTransformation], numbers: Mapping[str, ArrayLike]
    ) -> Transform:
        """Return an optax optimizer by numbers that have our names: lr, beta1, beta2."""
        return cls({_SHORT.get(name, name): number for name, number in numbers.items()}, make)

    def transform(self) -> optax.GradientTransformation:
        """Return the transform for gradients of the loss."""
        return self.make(**self.numbers)


def adam(lr: float, beta1: float = 0.9, beta2: float = 0.999) -> Transform:
    """Return Adam as optax has it."""
    return Transform.of(optax.adam, {"lr": lr, "beta1": beta1, "beta2": beta2})


@value
class Network:
    r"""A fully connected ReLU network, initialised after He et al. (2015).

    It learns :math:`y = \cos(\pi\lVert x\rVert)`, the paper's target; its response is the squared
    error on fresh inputs from the stationary law, against the target without noise.
    """

    hidden: tuple[int, ...] = static(default=(20, 20))

    def __post_init__(self) -> None:
        for width in self.hidden:
            check_whole("hidden", width, low=1, high=4096)


@value
class Training:
    r"""A learner that meets a stream.

    Linear models learn :math:`y = \langle\theta^*,\phi(x)\rangle + \epsilon` by the squared error;
    the weights begin at :math:`\theta_0`, and both :math:`\theta_0` and :math:`\theta^*` have
    independent components, uniform in -start..start or normal with variance start.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> training = Training(Sinusoid(period=22.0), heavy_ball(0.01, 0.97), batch=20)
    >>> training.weights  # slope and bias
    2
    """

    process: Process
    optimizer: Optimizer
    model: Features | Network = Linear()
    batch: float = 1
    noise: float = 0.0  # variance of the targets around the model
    start: float = 1.0
    start_law: str = static(default="uniform")
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        for name in ("batch", "noise", "start"):
            check_range(name, getattr(self, name))
        for name, choices in (("start_law", ("uniform", "normal")), ("reduction", ("mean", "sum"))):
            if getattr(self, name) not in choices:
                raise ArgumentError(f"{name} must be one of {', '.join(choices)}")

    @property
    def weights(self) -> int:
        """Number of weights of a linear model."""
        if isinstance(self.model, Network):
            raise ArgumentError("a network has no weights in common with its target")
        return self.model.size(self.process.dim)

    @property
    def linear(self) -> bool:
        """Whether the error of the weights obeys a linear recursion, which may be rescaled."""
        return isinstance(self.optimizer, Momentum) and not isinstance(self.model, Network)

    def at(self, values: Mapping[str, ArrayLike]) -> Training:
        """Return the training with some of its numbers replaced, by the names of `axes_of`."""
        known, optimizer_numbers = axes_of(self), numbers_of(self.optimizer)
        process: dict[str, Any] = {}
        optimizer: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name, number in values.items():
            if name not in known:
                raise suggest("axis", name, known)
            if name == "dim":
                continue  # shapes are fixed: the engine switches coordinates off
            home = own if name in ("batch", "noise", "start") else process
            (optimizer if name in optimizer_numbers else home)[name] = number
        return replace(
            self,
            process=replace(self.process, **process),  # pyright: ignore[reportArgumentType]
            optimizer=_with_numbers(self.optimizer, optimizer),
            **own,
        )


def numbers_of(optimizer: Any) -> tuple[str, ...]:
    if isinstance(optimizer, Transform):
        long = {word: short for short, word in _SHORT.items()}
        return tuple(long.get(name, name) for name in optimizer.numbers)
    return tuple(item.name for item in fields(optimizer) if not item.metadata.get("static"))


def _with_numbers(optimizer: Any, numbers: dict[str, Any]) -> Any:
    if isinstance(optimizer, Transform):
        given = {_SHORT.get(name, name): number for name, number in numbers.items()}
        return replace(optimizer, numbers={**optimizer.numbers, **given})
    return replace(optimizer, **numbers)


def axes_of(training: Training) -> tuple[str, ...]:
    """Return the names of the numbers that may vary from cell to cell."""
    of_process = tuple(
        item.name
        for item in fields(training.process)  # pyright: ignore[reportArgumentType]
        if item.name in ("period", "amplitude", "variance", "swing", "phase", "innovation", "dim")
    )
    return (*numbers_of(training.optimizer), *of_process, "batch", "noise", "start")
