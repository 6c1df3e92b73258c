"""Networks: models that are not linear in their weights."""

from __future__ import annotations

from resonax.core.errors import check_whole
from resonax.core.values import static, value

__all__ = ["Network"]


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
