r"""Settings that no order of the data can destabilise, and the fastest growth in any order.

The difference :math:`u` of two runs on the same rows obeys, with curvatures :math:`H_k`,

.. math:: u_{k+1} = u_k + \mu(u_k - u_{k-1}) - (\kappa\alpha+\beta)\,h_k + \mu\beta\,h_{k-1},
          \qquad h_k = (H_k + \lambda)\,u_k , \qquad 0 \le H_k \le L .

Nothing else is known of :math:`H_k`: any order, with repetitions, of any rows with that bound. In
terms of :math:`q(z) = z - (1+\mu) + \mu/z` and :math:`n(z) = \kappa\alpha + \beta - \mu\beta/z`
this is the feedback of :math:`H_k` around :math:`G = n / (q + \lambda n)`. By the circle criterion
a common quadratic norm grows by at most :math:`\rho` in every step of any order, if the roots of
:math:`q + \lambda n` lie within :math:`|z| < \rho` and

.. math:: 1 + L\,\mathrm{Re}\,G(z) \ge 0 \quad \text{on } |z| = \rho .

On that circle the condition is a polynomial of second degree in the cosine of the angle, so that
its minimum is exact. For heavy ball at :math:`\rho = 1` it reads

.. math:: \eta L \le \frac{2\,(1-\mu)^2}{1+\mu} .

It is sharp from two weights on. For a row of constant length that turns by the angle
:math:`\theta` in each step, the equations in the turning frame are constant, and
:math:`u_k = \rho^k R_\theta^k Y` solves them if and only if :math:`1 + L\,\mathrm{Re}\,G(\rho
e^{i\theta}) = 0`: at the angle where the criterion fails first, this order grows by exactly the
:math:`\rho` that the norm allows.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError, check_number
from resonax.core.objects import Result
from resonax.dynamics import Problem, Setting
from resonax.learners import Features, Linear, Momentum, heavy_ball
from resonax.recordings.recording import Recording, read_recording
from resonax.streams import Process, Recorded
from resonax.streams.waves import Wave
from resonax.theory.circle_criterion import (
    holds,
    largest_curvature,
    largest_lr,
    largest_momentum,
    worst_rate,
)

__all__ = ["OrderProof", "circle_norm", "judge_every_order", "longest_row", "order_proof"]

_MAX_CURVATURE = 1e12  # curvature
_RATE_MARGIN = 1e-4  # of a rate, above the least one: there the equation of the norm is regular

_CHUNK = 16384  # rows at a time
_WAVE_VALUES = 1025  # values of a wave between -1 and 1, both included


@dataclass(frozen=True, repr=False)
class OrderProof(Result):
    """What holds for every order of rows whose curvature is at most ``curvature``.

    Where the inputs are unbounded there is no such curvature: no momentum and no step size is
    proof against every order, and these are None.
    """

    curvature: float | None  # L: twice the largest squared length of a row of features
    holds: bool  # whether no order lets an error grow with this optimizer
    momentum: float | None  # largest momentum with which that holds at this step size
    lr: float | None  # largest step size with which it holds at this momentum
    rate: float | None  # growth per step in the worst order; 0 where none grows
    period: float | None  # steps of half a turn of the row that grows so; None where none grows
    tolerated: float  # largest curvature with which it holds for this optimizer
    exceeds: float | None = None  # chance that a batch exceeds that, where it was asked for

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the growth rate per step in the worst order, where it is bounded."""
        return {} if self.rate is None else {"worst order": (self.rate, self.rate, self.rate)}

    def __str__(self) -> str:
        """Return in words what holds."""
        return self.meaning()

    def meaning(self, what: str = "inputs") -> str:
        """Return one sentence.

        Examples
        --------
        >>> from resonax import heavy_ball
        >>> print(judge_every_order(heavy_ball(lr=0.01, momentum=0.95), 4.0).meaning())
        proved: any order of these inputs is safe below momentum 0.81, or below step size 0.000641
        """
        if self.lr is not None and self.momentum is not None:
            return (
                f"proved: any order of these {what} is safe below momentum {self.momentum:.3g}, "
                f"or below step size {self.lr:.3g}"
            )
        if self.lr is not None:
            return f"at this step size no momentum is safe in every order of these {what}"
        text = f"these {what} are unbounded, so that no setting is safe in every order of them"
        if self.exceeds is None:
            return text
        return (
            f"{text}; this setting is safe in every order of batches with a curvature of at most "
            f"{self.tolerated:.3g}, and {self.exceeds:.1%} of the batches have a larger one"
        )


def judge_every_order(
    optimizer: Momentum, curvature: float, intercept_lr: float | None = None
) -> OrderProof:
    r"""Judge an optimizer on all orders of rows with curvatures from 0 to ``curvature``.

    A bias with a step size of its own and without momentum adds a coordinate with another
    :math:`G`; the criterion is that of each coordinate, and the norms add up.
    """
    check_number("curvature", curvature, low=0, high=_MAX_CURVATURE, open_low=True)
    rho, cosine = worst_rate(optimizer, curvature)
    grows = rho > 1.0
    period = math.pi / math.acos(cosine) if grows and cosine < 1 else None
    rate = 0.0 if not grows and not optimizer.weight_decay else math.log(rho)
    momentum = float(largest_momentum(optimizer, curvature))
    proof = OrderProof(
        float(curvature),
        bool(holds(optimizer, curvature)),
        None if math.isnan(momentum) else momentum,
        largest_lr(optimizer, curvature),
        rate,
        period,
        largest_curvature(optimizer),
    )
    if not intercept_lr:  # none, or one that never moves
        return proof
    plain = judge_every_order(Momentum(intercept_lr), curvature)
    assert proof.lr is not None
    assert plain.rate is not None
    return replace(
        proof,
        holds=proof.holds and plain.holds,
        momentum=proof.momentum if plain.holds else None,
        lr=proof.lr if plain.holds else 0.0,
        rate=max(rate, plain.rate),
        tolerated=min(proof.tolerated, plain.tolerated),
    )


def circle_norm(optimizer: Momentum, curvature: float) -> tuple[np.ndarray, float]:
    r"""Return P, (2, 2), and a rate: no row lets a pair (u, v) grow by more in P ⊗ I.

    With the state matrices of G, scaled by the rate, P solves the Riccati equation of the positive
    real lemma (Hitz and Anderson, 1969); the rate is a little above the least one, where the
    equation is singular.

    Examples
    --------
    >>> from resonax import heavy_ball
    >>> norm, rate = circle_norm(heavy_ball(0.01, 0.9), 10.0)
    >>> bool(np.linalg.eigvalsh(norm).min() > 0), round(rate, 3)
    (True, 0.066)
    """
    rho = worst_rate(optimizer, curvature)[0] * (1 + _RATE_MARGIN)
    gain = optimizer.kappa * optimizer.alpha + optimizer.beta
    alpha, momentum, decay = optimizer.alpha, optimizer.momentum, optimizer.weight_decay
    own = np.array([[1 - gain * decay, optimizer.kappa * momentum], [-alpha * decay, momentum]])
    entry, seen = np.array([[gain], [alpha]]), np.array([[1.0], [0.0]])
    found: Any = scipy.linalg.solve_discrete_are(
        own / rho, entry / rho, np.zeros((2, 2)), np.array([[2 / curvature]]), s=seen
    )
    return -found, math.log(rho)


def curvature_bound(problem: Problem) -> float | None:
    r"""Return the largest curvature of a batch of a problem, None where there is none.

    Examples
    --------
    >>> from resonax import Recorded, Setting, Sinusoid, heavy_ball
    >>> rows = Recorded.of([[0.0], [2.0], [-1.0]])
    >>> curvature_bound(Setting(rows, heavy_ball(0.01, 0.9)))  # 2 (2^2 + 1)
    10.0
    >>> print(curvature_bound(Setting(Sinusoid(period=22), heavy_ball(0.01, 0.9))))
    None
    """
    model, process = problem.model, problem.process
    if not isinstance(model, Features):
        return None
    longest = model.largest_square
    if isinstance(process, Recorded):
        longest = longest_row(model, np.asarray(process.data).reshape(-1, process.dim))
    elif isinstance(process, Wave) and not np.any(np.asarray(process.variance)):
        mean, _ = jax.vmap(process._moments)(jnp.linspace(-1.0, 1.0, _WAVE_VALUES))
        longest = longest_row(model, np.asarray(mean))
    return None if longest is None else 2 * float(problem.gradient_scale) * longest


def longest_row(model: Features, inputs: np.ndarray) -> float:
    """Return the largest squared length of the features of inputs."""
    largest = 0.0
    for start in range(0, len(inputs), _CHUNK):
        rows = np.asarray(model.apply(inputs[start : start + _CHUNK]), dtype=float)  # pyrefly: ignore[bad-argument-type]
        largest = max(largest, float(np.max(np.sum(rows * rows, axis=1))))
    return largest


@double_precision
def exceedance(problem: Problem, limit: float, draws: int = 4096, seed: int = 0) -> float:
    """Return the share of drawn batches whose curvature exceeds a limit.

    Each is drawn on its own, at a random step of the process in its stationary law; the standard
    error is sqrt(p (1 - p) / draws).

    Examples
    --------
    >>> from resonax import Iid, Linear, Setting, heavy_ball
    >>> setting = Setting(Iid(), heavy_ball(0.01, 0.5), model=Linear(bias=False))
    >>> print(f"{exceedance(setting, limit=2.0):.2f}")  # P(|x| > 1) = 0.317
    0.32
    """
    process = problem.process
    span = 1 if process.random_mean else int(np.ceil(float(process.cycle)))
    keys = jax.random.split(jax.random.key(seed), draws)
    # Without the optimizer: each would compile a program of its own.
    law = process, problem.model, problem.gradient_scale
    drawn = _draw(*law, max(span, 1), keys, batch=int(problem.batch))
    return float(np.mean(np.linalg.eigvalsh(drawn)[:, -1] > limit))


@functools.partial(jax.jit, static_argnames=("batch",))
def _draw(
    process: Process, model: Any, scale: Array, span: Array, keys: Array, *, batch: int
) -> Array:
    """Return the curvatures of batches, (draws, size, size)."""
    assert isinstance(model, Features)

    def one(key: Array) -> Array:
        start, index, walk, draw = jax.random.split(key, 4)
        step = jax.random.randint(index, (), 0, span)
        _, moments = process.draw_step(walk, process.draw_init(start), step)
        return 2 * scale * model.sample(draw, moments, batch)

    return jax.vmap(one)(keys)


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
