"""Learners: models and optimizers."""

from resonax.learners.basis import Fourier, Polynomial, Radial
from resonax.learners.features import Features, Linear, Network
from resonax.learners.omitted import Joint, Omitted
from resonax.learners.optimizers import (
    Momentum,
    from_optax,
    from_river,
    from_torch,
    heavy_ball,
    nesterov,
    sgd,
)
from resonax.learners.transforms import (
    Optimizer,
    Transform,
    adam,
    adamw,
    amsgrad,
    check_optimizer,
    make_optimizer,
    rmsprop,
)

__all__ = [
    "Features",
    "Fourier",
    "Joint",
    "Linear",
    "Momentum",
    "Network",
    "Omitted",
    "Optimizer",
    "Polynomial",
    "Radial",
    "Transform",
    "adam",
    "adamw",
    "amsgrad",
    "check_optimizer",
    "from_optax",
    "from_river",
    "from_torch",
    "heavy_ball",
    "make_optimizer",
    "nesterov",
    "rmsprop",
    "sgd",
]
