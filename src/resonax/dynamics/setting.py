"""A setting: a problem that the theory judges. The argument of every criterion."""

from __future__ import annotations

from dataclasses import replace

from jax import Array

from resonax.core.errors import ArgumentError
from resonax.core.moments import Moments
from resonax.core.values import value
from resonax.dynamics.problem import Problem
from resonax.learners import Features, Joint, Linear, Momentum

__all__ = ["Setting"]


@value
class Setting(Problem):
    r"""A problem whose dynamics are linear: a linear model trained by SGD with momentum.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97), batch=20)
    >>> setting.size  # slope and bias
    2
    """

    optimizer: Momentum
    model: Features = Linear()
    noise: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isinstance(self.optimizer, Momentum) and isinstance(self.model, Features)):
            raise ArgumentError(
                "a setting needs SGD with momentum and a linear model: simulate others"
            )

    @property
    def grouped(self) -> Setting:
        """The same setting with the rows of a recording taken ``batch`` at a time."""
        return replace(self, process=self.process.grouped(int(self.batch)))

    @property
    def joint(self) -> Features:
        """The features, and as the last one what they omit of the target."""
        return self.model if self.omitted is None else Joint(self.model, self.omitted)

    def curvature(self, moments: Moments) -> Array:
        r"""Return :math:`B = 2E[\phi\phi^\top]`, the expected gradient's matrix (Prop. 1)."""
        return 2 * self.gradient_scale * self.model.second(moments)
