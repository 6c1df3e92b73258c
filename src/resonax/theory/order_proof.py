"""Settings that no order of the data can destabilise: of data, of a setting, of an optimizer."""

from __future__ import annotations

from typing import Any

from resonax.core.errors import ArgumentError
from resonax.dynamics import Problem, Setting
from resonax.learners import Features, Linear, Momentum, heavy_ball
from resonax.recordings.recording import Recording, read_recording
from resonax.streams import Recorded
from resonax.theory.circle import OrderProof, judge_every_order
from resonax.theory.circle_criterion import largest_curvature
from resonax.theory.curvature import curvature_bound, exceedance

__all__ = ["order_proof"]


def order_proof(
    source: Momentum | Problem | Recording | Any,
    curvature: float | None = None,
    *,
    lr: float | None = None,
    momentum: float | None = None,
    bias: bool = True,
    draws: int = 0,
    seed: int = 0,
    **reading: Any,
) -> OrderProof:
    r"""Judge an optimizer on all orders of the rows of some data, or of any with a curvature.

    Parameters
    ----------
    source
        A `Setting`; or data as `check` takes them, with ``lr`` and ``momentum`` of heavy ball; or
        an optimizer with ``curvature``.
    curvature
        Largest curvature :math:`L` of the loss of one batch: :math:`2\max\lVert\phi\rVert^2` for
        the squared error, for batches of any size. It is found where ``source`` is no optimizer.
    lr, momentum, bias
        For data: of heavy ball, and whether the linear model has a bias.
    draws, seed
        For unbounded inputs: batches to draw for the chance that one exceeds the curvature that the
        optimizer tolerates in every order.
    **reading
        For data: what `check` takes to read them, such as ``target`` or ``standardise``.

    Examples
    --------
    >>> from resonax import heavy_ball
    >>> found = order_proof(heavy_ball(lr=0.01, momentum=0.95), curvature=4.0)
    >>> found.holds, round(found.momentum, 3)
    (False, 0.81)
    >>> print(f"{found.lr:.5f}")  # 2 (1 - 0.95)^2 / (1.95 * 4)
    0.00064
    >>> found = order_proof([0.0, 1.0, 2.0, 1.0], lr=0.01, momentum=0.9)  # brought to variance 1
    >>> round(found.curvature, 6), round(found.momentum, 3)
    (6.0, 0.77)
    """
    if isinstance(source, Momentum):
        if curvature is None:
            raise ArgumentError("an optimizer needs the curvature of the rows: give curvature")
        return judge_every_order(source, curvature)
    if curvature is not None:
        raise ArgumentError("curvature belongs to an optimizer: that of data or a setting is found")
    if not isinstance(source, Problem):
        source = _setting_of(source, lr, momentum, bias, reading)
    elif lr is not None or momentum is not None or reading:
        raise ArgumentError("a setting has its own optimizer: lr and momentum belong to data")
    if not (isinstance(source.optimizer, Momentum) and isinstance(source.model, Features)):
        raise ArgumentError("a proof for every order needs SGD with momentum and a linear model")
    found = curvature_bound(source)
    if found is not None:
        return judge_every_order(source.optimizer, found)
    tolerated = largest_curvature(source.optimizer)
    chance = exceedance(source, tolerated, draws, seed) if draws else None
    return OrderProof(None, False, None, None, None, None, tolerated, chance)


def _setting_of(
    data: Any, lr: float | None, momentum: float | None, bias: bool, reading: dict[str, Any]
) -> Setting:
    if lr is None or momentum is None:
        raise ArgumentError("data need lr and momentum: order_proof(data, lr=0.01, momentum=0.9)")
    recording = data if isinstance(data, Recording) else read_recording(data, **reading)
    return Setting(Recorded.of(recording.inputs), heavy_ball(lr, momentum), model=Linear(bias))
