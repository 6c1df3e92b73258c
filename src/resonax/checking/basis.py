"""The features of a recording's columns."""

from __future__ import annotations

from collections.abc import Callable

from resonax.core.errors import ArgumentError, shorten
from resonax.learners import Features, Linear
from resonax.recordings.recording import Recording

__all__ = ["choose_basis"]


def choose_basis(
    basis: Features | Callable[[int], Features] | None,
    bias: bool,
    recording: Recording,
    intercept_lr: float | None,
) -> tuple[Features, float | None]:
    """Return the features, and the step size of a bias, which only a linear model has."""
    if basis is None:
        basis = Linear(bias)
    elif not bias:
        raise ArgumentError("bias belongs to the linear model: leave it as it is with a basis")
    elif not isinstance(basis, Features) and callable(basis):
        basis = basis(recording.inputs.shape[1])
    if not isinstance(basis, Features):
        raise ArgumentError(
            f"basis must be features like Polynomial(2), or make them, got {shorten(basis)}"
        )
    has_bias = isinstance(basis, Linear) and basis.bias
    return basis, intercept_lr if has_bias else None
