"""Optimizers of optax, by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError, check_range, shorten
from resonax.core.values import Varied, static, value
from resonax.spec.kinds import Kind

if TYPE_CHECKING:
    import optax  # which takes long to load: functions do it

__all__ = [
    "Optimizer",
    "Transform",
    "adam",
    "adamw",
    "amsgrad",
    "check_optimizer",
    "make_optimizer",
    "rmsprop",
]


class Optimizer(Protocol):
    """Anything that gives an optax transformation, and whose numbers may vary."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the numbers that may vary."""
        ...

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the same with some of its numbers replaced."""
        ...

    def transform(self) -> optax.GradientTransformation:
        """Return the transformation of gradients of the loss."""
        ...


_OURS_FOR = {  # by library: what to write for its optimizers
    "optax": "for optax.sgd write from_optax(0.01, momentum=0.9), for others a Transform",
    "torch": "for torch.optim.SGD write from_torch(lr=0.01, momentum=0.9), for Adam adam(lr=0.01)",
    "river": "for river.optim.Momentum write from_river(lr=0.1, rho=0.9)",
}


def check_optimizer(given: object) -> None:
    """Raise `ArgumentError` for what is no optimizer, and say what to write for those of others.

    Examples
    --------
    >>> check_optimizer("sgd")
    Traceback (most recent call last):
    resonax.ArgumentError: optimizer must be one of resonax, like heavy_ball(lr=0.01, ...
    """
    if not isinstance(given, type) and all(hasattr(given, n) for n in ("transform", "at", "axes")):
        return
    library = type(given).__module__.partition(".")[0]
    advice = _OURS_FOR.get(library)
    raise ArgumentError(
        "optimizer must be one of resonax, "
        + (
            f"got one of {library}: {advice}"
            if advice
            else f"like heavy_ball(lr=0.01, momentum=0.9), got {shorten(given)}"
        )
    )


_OPTAX = {"lr": "learning_rate", "beta1": "b1", "beta2": "b2"}  # what optax calls our numbers
_OURS = {theirs: ours for ours, theirs in _OPTAX.items()}


@value
class Transform(Varied):
    """Any optax optimizer: the function that makes it, and its numbers by their optax names.

    Examples
    --------
    >>> import optax
    >>> Transform({"learning_rate": 0.01, "decay": 0.9}, optax.rmsprop).transform().init(0.0)
    (ScaleByRmsState(nu=Array(0., dtype=float32...)), ...)
    """

    numbers: Mapping[str, ArrayLike]
    make: Callable[..., optax.GradientTransformation] = static(default=None)

    @classmethod
    def of(
        cls, make: Callable[..., optax.GradientTransformation], numbers: Mapping[str, ArrayLike]
    ) -> Transform:
        """Return an optax optimizer by numbers that have our names: lr, beta1, beta2."""
        return cls(_in_optax(numbers), make)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the numbers, lr, beta1 and beta2 for those of optax."""
        return tuple(_OURS.get(name, name) for name in self.numbers)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the same optimizer with some of its numbers replaced, by the names of `axes`."""
        return replace(self, numbers={**self.numbers, **_in_optax(values)})

    def transform(self) -> optax.GradientTransformation:
        """Return the transformation of gradients of the loss."""
        return self.make(**self.numbers)


def _in_optax(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {_OPTAX.get(name, name): number for name, number in numbers.items()}


def _checked(make: Callable[..., Any], **numbers: float) -> Transform:
    for name, number in numbers.items():
        check_range(name, number)
    return Transform.of(make, numbers)


def adam(lr: float, beta1: float = 0.9, beta2: float = 0.999) -> Transform:
    """Return Adam as optax has it."""
    import optax

    return _checked(optax.adam, lr=lr, beta1=beta1, beta2=beta2)


def adamw(
    lr: float, beta1: float = 0.9, beta2: float = 0.999, weight_decay: float = 1e-4
) -> Transform:
    """Return AdamW, whose weight decay does not pass through the gradient, as optax has it."""
    import optax

    return _checked(optax.adamw, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay)


def amsgrad(lr: float, beta1: float = 0.9, beta2: float = 0.999) -> Transform:
    """Return AMSGrad, which divides by the largest mean square so far, as optax has it."""
    import optax

    return _checked(optax.amsgrad, lr=lr, beta1=beta1, beta2=beta2)


def rmsprop(lr: float, beta2: float = 0.99, momentum: float = 0.0) -> Transform:
    """Return RMSprop as optax has it, with torch's default for the share that a mean keeps."""
    import optax

    check_range("beta2", beta2)  # by the name that it has here
    return _checked(optax.rmsprop, lr=lr, decay=beta2, momentum=momentum)


def make_optimizer(kind: Kind, numbers: Mapping[str, Any]) -> Any:
    """Return an optimizer of the table of names, by its numbers.

    Examples
    --------
    >>> from resonax.spec.kinds import KINDS
    >>> make_optimizer(KINDS["optimizer"]["optax.rmsprop"], {"lr": 0.1, "decay": 0.9}).axes
    ('lr', 'decay')
    """
    make = kind.load()
    is_optax = kind.maker.startswith("optax:")
    return Transform.of(make, numbers) if is_optax else make(**numbers)
