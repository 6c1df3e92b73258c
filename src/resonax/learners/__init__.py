"""Learners: feature maps of linear models, and optimizers."""

from resonax.learners.basis import Fourier, Polynomial, Radial
from resonax.learners.features import Features, Linear
from resonax.learners.optimizers import (
    Momentum,
    from_optax,
    from_river,
    from_torch,
    heavy_ball,
    nesterov,
    sgd,
)

__all__ = [
    "Features",
    "Fourier",
    "Linear",
    "Momentum",
    "Polynomial",
    "Radial",
    "from_optax",
    "from_river",
    "from_torch",
    "heavy_ball",
    "nesterov",
    "sgd",
]
