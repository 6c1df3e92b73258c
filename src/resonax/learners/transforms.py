"""Optimizers of optax, described by their hyperparameters, which may vary over a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError, check_range, shorten
from resonax.core.values import Varied, static, value
from resonax.spec.kinds import Kind

if TYPE_CHECKING:
    import optax  # takes long to load, so functions import it where they need it

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
    """An optimizer that can be made as an optax transformation for any hyperparameters."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the hyperparameters that may vary over a grid."""
        ...

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the same optimizer with some hyperparameters replaced."""
        ...

    def transform(self) -> optax.GradientTransformation:
        """Return the optax transformation, which turns gradients into updates."""
        ...


_ADVICE = {  # what to write instead of an optimizer of another library
    "optax": "for optax.sgd write from_optax(0.01, momentum=0.9), for others a Transform",
    "torch": "for torch.optim.SGD write from_torch(lr=0.01, momentum=0.9), for Adam adam(lr=0.01)",
    "river": "for river.optim.Momentum write from_river(lr=0.1, rho=0.9)",
}


def check_optimizer(optimizer: object) -> None:
    """Raise `ArgumentError` unless this is an optimizer of resonax.

    For an optimizer of optax, torch or river the message says what to write instead.

    Examples
    --------
    >>> check_optimizer("sgd")
    Traceback (most recent call last):
    resonax.ArgumentError: optimizer must be one of resonax, like heavy_ball(lr=0.01, ...
    """
    has_methods = all(hasattr(optimizer, name) for name in ("transform", "at", "axes"))
    if has_methods and not isinstance(optimizer, type):
        return
    library = type(optimizer).__module__.partition(".")[0]
    if library in _ADVICE:
        got = f"got one of {library}: {_ADVICE[library]}"
    else:
        got = f"like heavy_ball(lr=0.01, momentum=0.9), got {shorten(optimizer)}"
    raise ArgumentError(f"optimizer must be one of resonax, {got}")


_OPTAX_NAMES = {"lr": "learning_rate", "beta1": "b1", "beta2": "b2"}  # by their names in resonax
_RESONAX_NAMES = {optax_name: name for name, optax_name in _OPTAX_NAMES.items()}


@value
class Transform(Varied):
    """Any optax optimizer: the function that makes it, and its arguments by their optax names.

    Examples
    --------
    >>> import optax
    >>> Transform({"learning_rate": 0.01, "decay": 0.9}, optax.rmsprop).transform().init(0.0)
    (ScaleByRmsState(nu=Array(0., dtype=float32...)), ...)
    """

    hyperparameters: Mapping[str, ArrayLike]
    make: Callable[..., optax.GradientTransformation] = static(default=None)

    @classmethod
    def of(
        cls,
        make: Callable[..., optax.GradientTransformation],
        hyperparameters: Mapping[str, ArrayLike],
    ) -> Transform:
        """Return an optax optimizer, given its hyperparameters as lr, beta1 and beta2."""
        return cls(_by_optax_names(hyperparameters), make)

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the hyperparameters: lr, beta1 and beta2, and for others those of optax."""
        return tuple(_RESONAX_NAMES.get(name, name) for name in self.hyperparameters)

    def at(self, values: Mapping[str, Any]) -> Self:
        """Return the same optimizer with some hyperparameters replaced, by the names of `axes`."""
        return replace(self, hyperparameters={**self.hyperparameters, **_by_optax_names(values)})

    def transform(self) -> optax.GradientTransformation:
        """Return the optax transformation, which turns gradients into updates."""
        return self.make(**self.hyperparameters)


def _by_optax_names(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    return {_OPTAX_NAMES.get(name, name): number for name, number in hyperparameters.items()}


def _checked_transform(make: Callable[..., Any], **hyperparameters: float) -> Transform:
    for name, number in hyperparameters.items():
        check_range(name, number)
    return Transform.of(make, hyperparameters)


def adam(lr: float, beta1: float = 0.9, beta2: float = 0.999) -> Transform:
    """Return Adam (`optax.adam`)."""
    import optax

    return _checked_transform(optax.adam, lr=lr, beta1=beta1, beta2=beta2)


def adamw(
    lr: float, beta1: float = 0.9, beta2: float = 0.999, weight_decay: float = 1e-4
) -> Transform:
    """Return AdamW, Adam with decoupled weight decay (`optax.adamw`)."""
    import optax

    return _checked_transform(
        optax.adamw, lr=lr, beta1=beta1, beta2=beta2, weight_decay=weight_decay
    )


def amsgrad(lr: float, beta1: float = 0.9, beta2: float = 0.999) -> Transform:
    """Return AMSGrad, Adam with the maximum of all second moments so far (`optax.amsgrad`)."""
    import optax

    return _checked_transform(optax.amsgrad, lr=lr, beta1=beta1, beta2=beta2)


def rmsprop(lr: float, beta2: float = 0.99, momentum: float = 0.0) -> Transform:
    """Return RMSprop (`optax.rmsprop`); ``beta2`` is its ``decay``, with the default of torch."""
    import optax

    check_range("beta2", beta2)  # so that the error says beta2, not decay
    return _checked_transform(optax.rmsprop, lr=lr, decay=beta2, momentum=momentum)


def make_optimizer(kind: Kind, hyperparameters: Mapping[str, Any]) -> Any:
    """Return an optimizer of one of the kinds in `resonax.spec.kinds.KINDS`.

    Examples
    --------
    >>> from resonax.spec.kinds import KINDS
    >>> make_optimizer(KINDS["optimizer"]["optax.rmsprop"], {"lr": 0.1, "decay": 0.9}).axes
    ('lr', 'decay')
    """
    make = kind.load()
    is_optax = kind.maker.startswith("optax:")
    return Transform.of(make, hyperparameters) if is_optax else make(**hyperparameters)
