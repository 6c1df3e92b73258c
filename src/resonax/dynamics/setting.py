"""A setting: who learns what from which stream. The argument of every criterion."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from jax import Array

from resonax.checks import ArgumentError, check_number
from resonax.learners import Features, Linear, Momentum
from resonax.moments import Moments
from resonax.processes import Process, Recorded
from resonax.values import static, value

__all__ = ["Setting"]


@value
class Setting:
    r"""A linear model trained by an optimizer on a process, ``batch`` inputs a step.

    The loss is the squared error :math:`(\langle\theta,\phi(x)\rangle - y)^2`, without a factor
    1/2, with :math:`y = \langle\theta^*,\phi(x)\rangle + \epsilon` and
    :math:`\operatorname{Var}\epsilon =` ``noise``. Gradients are averaged over the batch, or added
    up with ``reduction="sum"``.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97), batch=20)
    >>> setting.size  # slope and bias
    2
    """

    process: Process
    optimizer: Momentum
    batch: float = 1
    noise: float = 1.0
    features: Features = Linear()
    reduction: str = static(default="mean")

    def __post_init__(self) -> None:
        check_number("batch", self.batch, low=1, high=1e12)
        if isinstance(self.batch, float) and self.batch != int(self.batch):
            raise ArgumentError(f"batch must be a whole number, got {self.batch:g}")
        check_number("noise", self.noise, low=0, high=1e12)
        if self.reduction not in ("mean", "sum"):
            raise ArgumentError(f"reduction must be 'mean' or 'sum', got {self.reduction!r}")

    def describe(self) -> dict[str, Any]:
        """Return names and numbers as plain values, for the record of a result."""
        return _plain(self)

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.features.size(self.process.dim)

    @property
    def grouped(self) -> Setting:
        """The same setting with the rows of a recording taken ``batch`` at a time."""
        if not isinstance(self.process, Recorded):
            return self
        return replace(self, process=self.process.grouped(int(self.batch)))

    @property
    def summed(self) -> float:
        """Factor of the gradient: 1 for the mean over the batch, its size for the sum."""
        return self.batch if self.reduction == "sum" else 1.0

    def curvature(self, moments: Moments) -> Array:
        r"""Return :math:`B = 2E[\phi\phi^\top]`, the expected gradient's matrix (Prop. 1)."""
        return 2 * self.summed * self.features.second(moments)


def _plain(thing: Any) -> Any:
    if is_dataclass(thing):
        inner = {item.name: _plain(getattr(thing, item.name)) for item in fields(thing)}
        return {"kind": type(thing).__name__, **inner}
    if thing is None or isinstance(thing, str | bool):
        return thing
    array = np.asarray(thing)
    if array.size > 64:
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        return f"array of shape {array.shape}, sha256 {digest}"
    return array.tolist()
