"""What is simulated: a problem, and where its weights begin."""

from __future__ import annotations

from resonax.core.values import static, value
from resonax.dynamics.problem import Problem, check_choice
from resonax.learners import Momentum, Network

__all__ = ["Training"]


@value
class Training(Problem):
    r"""A problem and the law of its first weights.

    The weights of a linear model begin at :math:`\theta_0`. Both :math:`\theta_0` and the target
    :math:`\theta^*` have independent components, uniform in -start..start or, with
    ``start_law="normal"``, normal with variance start.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> training = Training(Sinusoid(period=22.0), heavy_ball(0.01, 0.97), batch=20)
    >>> training.size  # slope and bias
    2
    """

    start: float = 1.0
    start_law: str = static(default="uniform")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("start_law", self.start_law, ("uniform", "normal"))

    @property
    def is_linear(self) -> bool:
        """Whether the error of the weights obeys a linear recursion, which may be rescaled."""
        return isinstance(self.optimizer, Momentum) and not isinstance(self.model, Network)
