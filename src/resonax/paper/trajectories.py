r"""Trajectories written by hand from the paper's formulas: plain NumPy, and scipy for the flow.

Nothing of the library is used, so that agreement with it is evidence. The model is slope and bias
on one input of mean :math:`m` and variance :math:`c`; a state is the error of the two weights and
their velocity, (2, 2). Only `mean_gradient` is for any number of inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: half a second each

__all__ = [
    "Drive",
    "FlowProblem",
    "flow_errors",
    "flow_sizes",
    "growth_per_turn",
    "mean_gradient",
    "sgdm_path",
    "sgdm_sizes",
    "split_path",
    "stable_sizes",
]

_AMPLITUDE = 0.5


def curvature(mean: Any, variance: Any = 1.0) -> np.ndarray:
    r"""Return :math:`B = 2\begin{pmatrix} c+m^2 & m \\ m & 1 \end{pmatrix}`, (..., 2, 2)."""
    matrix = np.empty((*np.shape(mean), 2, 2))
    matrix[..., 0, 0] = variance + mean**2
    matrix[..., 0, 1] = matrix[..., 1, 0] = mean
    matrix[..., 1, 1] = 1.0
    return 2 * matrix


def _sinusoid(turns: Any) -> np.ndarray:
    return _AMPLITUDE * np.sin(2 * np.pi * np.asarray(turns))


def mean_gradient(
    inputs: np.ndarray, error: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the mean of the gradients of single samples, and its standard error.

    For the loss :math:`(\langle\theta, x\rangle - y)^2` with :math:`x = (\text{input}, 1)` and
    :math:`e = \theta-\theta^*` they are :math:`2\,(\langle e, x\rangle - \epsilon)\,x`.
    """
    inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
    drawn = 2 * (inputs @ error - noise)[:, None] * inputs
    return drawn.mean(0), drawn.std(0, ddof=1) / np.sqrt(len(inputs))


class FlowProblem(NamedTuple):
    """The flow of a sinusoid: friction, and period in the units of time, and a start, (2, 2)."""

    friction: float
    period: float
    start: np.ndarray


def sgdm_path(problem: FlowProblem, steps: int, lr: float, momentum: float) -> np.ndarray:
    """Return SGDm on expected gradients, (steps + 1, 2, 2), velocities in the units of time."""
    root = np.sqrt(lr)  # the time that a step takes
    weights, velocity = problem.start[0], root * problem.start[1]
    path = [problem.start]
    for step in range(steps):
        gradient = curvature(_sinusoid(step * root / problem.period)) @ weights
        velocity = momentum * velocity - lr * gradient
        weights = weights + velocity
        path.append(np.array([weights, velocity / root]))
    return np.array(path)


def split_path(problem: FlowProblem, steps: int, step: float) -> np.ndarray:
    r"""Return the paper's split integrator of the flow, (steps + 1, 2, 2).

    Explicit Euler of the force and the friction, then implicit Euler of the motion:
    :math:`\xi \gets (I - hN)^{-1}(I + hF_k)\,\xi` with

    .. math:: N = \begin{pmatrix} 0 & I \\ 0 & 0 \end{pmatrix}, \qquad
              F_k = \begin{pmatrix} 0 & 0 \\ -B(hk) & -\gamma I \end{pmatrix} .
    """
    zero, eye = np.zeros((2, 2)), np.eye(2)
    implicit = np.eye(4) - step * np.block([[zero, eye], [zero, zero]])
    path = [problem.start.ravel()]
    for index in range(steps):
        force = -curvature(_sinusoid(index * step / problem.period))
        explicit = np.eye(4) + step * np.block([[zero, zero], [force, -problem.friction * eye]])
        path.append(np.linalg.solve(implicit, explicit @ path[-1]))
    return np.array(path).reshape(-1, 2, 2)


def _exact(problem: FlowProblem, times: np.ndarray) -> np.ndarray:
    """Return the weights under the exact flow at given times, (times, 2)."""

    def slope(time: float, state: np.ndarray) -> np.ndarray:
        force = -curvature(_sinusoid(time / problem.period)) @ state[:2]
        return np.concatenate([state[2:], force - problem.friction * state[2:]])

    tight: Any = {"method": "DOP853", "t_eval": times, "rtol": 1e-12, "atol": 1e-13}
    return (
        scipy.integrate.solve_ivp(slope, (0.0, times[-1]), problem.start.ravel(), **tight).y[:2].T
    )


def flow_errors(problem: FlowProblem, steps: int, lr: float, momentum: float) -> np.ndarray:
    """Return the distance of the weights of SGDm from the exact flow at each step."""
    exact = _exact(problem, np.sqrt(lr) * np.arange(steps + 1))
    return np.linalg.norm(sgdm_path(problem, steps, lr, momentum)[:, 0] - exact, axis=1)


class Drive(NamedTuple):
    """Settings of which many are followed at once: sinusoids and square waves, one lr."""

    square: np.ndarray  # whether the mean is a square wave
    variance: np.ndarray
    period: np.ndarray  # in steps
    momentum: np.ndarray
    lr: float

    def force(self, turns: float) -> np.ndarray:
        """Return B at a time in periods, (settings, 2, 2); a jump belongs to what follows it."""
        wave = 1.0 if np.floor(2 * turns) % 2 == 0 else -1.0
        return curvature(np.where(self.square, _AMPLITUDE * wave, _sinusoid(turns)), self.variance)


def flow_sizes(drive: Drive, starts: np.ndarray, turns: int) -> np.ndarray:
    """Return the logarithm of the size of the state after each period, (settings, starts, turns+1).

    The equation is linear: after each half period, where the square waves jump, the states are
    scaled back to size 1 and the logarithm of the factor is kept.
    """
    state = np.broadcast_to(starts, (len(drive.period), *starts.shape))
    log = np.zeros((*state.shape[:2], turns + 1))
    log[..., 0] = np.log(np.linalg.norm(state, axis=(2, 3)))
    for turn in range(turns):
        log[..., turn + 1] = log[..., turn]
        for half in (0.0, 0.5):
            unit = state / np.linalg.norm(state, axis=(2, 3), keepdims=True)
            state = _follow_half(drive, unit, half, 1e-8)
            log[..., turn + 1] += np.log(np.linalg.norm(state, axis=(2, 3)))
    return log


def _follow_half(drive: Drive, state: np.ndarray, half: float, tolerance: float) -> np.ndarray:
    """Return where the flow takes states, (settings, starts, 2, 2), in half a period."""
    root, shape = np.sqrt(drive.lr), state.shape
    time = (root * drive.period)[:, None, None]  # one period in the units of time
    friction = ((1 - drive.momentum) / root)[:, None, None]

    def slope(phase: float, flat: np.ndarray) -> np.ndarray:
        now = flat.reshape(shape)
        inner = min(max(phase, half), half + 0.5 - 1e-12)  # this side of the jump
        force = now[:, :, 0] @ drive.force(inner)  # B is symmetric
        moves = np.empty(shape)
        moves[:, :, 0] = time * now[:, :, 1]
        moves[:, :, 1] = time * (-force - friction * now[:, :, 1])
        return moves.ravel()

    tight: Any = {"method": "DOP853", "rtol": tolerance, "atol": tolerance}
    found = scipy.integrate.solve_ivp(slope, (half, half + 0.5), state.ravel(), **tight)
    return found.y[:, -1].reshape(shape)


def stable_sizes(drive: Drive, start: np.ndarray, turns: int) -> np.ndarray:
    r"""Return the logarithm of the size of solutions in stable directions, (settings, turns + 1).

    Four independent solutions over one period are the monodromy matrix. A start, (2, 2), is
    projected onto the span of its eigenvectors with multipliers below 1, and followed by the flow.
    There always are some: the product of all multipliers is :math:`e^{-2\gamma T} < 1` (Liouville).
    """
    tolerance = 1e-12
    eye = np.broadcast_to(np.eye(4).reshape(4, 2, 2), (len(drive.period), 4, 2, 2))
    ends = _follow_half(drive, _follow_half(drive, eye, 0.0, tolerance), 0.5, tolerance)
    multipliers, vectors = np.linalg.eig(ends.reshape(-1, 4, 4).swapaxes(1, 2))
    parts = np.linalg.solve(vectors, np.tile(start.reshape(1, 4, 1) + 0j, (len(ends), 1, 1)))
    parts[np.abs(multipliers) >= 1] = 0
    state = (vectors @ parts).real.reshape(-1, 1, 2, 2)
    sizes = [np.linalg.norm(state, axis=(2, 3))]
    for _ in range(turns):
        for half in (0.0, 0.5):
            state = _follow_half(drive, state, half, tolerance)
        sizes.append(np.linalg.norm(state, axis=(2, 3)))
    return np.log(np.array(sizes)[..., 0].T)


def sgdm_sizes(drive: Drive, starts: np.ndarray, turns: int) -> np.ndarray:
    """Return the same as `flow_sizes` for SGDm itself, on expected gradients; whole periods."""
    root = np.sqrt(drive.lr)
    log = np.zeros((len(drive.period), len(starts), turns + 1))
    for row, period in enumerate(drive.period.astype(int)):
        forces = [drive.force(step / period)[row] for step in range(period)]
        weights, velocity = starts[:, 0], root * starts[:, 1]
        for turn in range(turns + 1):
            size = np.hypot(
                np.linalg.norm(weights, axis=1), np.linalg.norm(velocity, axis=1) / root
            )[:, None]
            log[row, :, turn] = np.log(size[:, 0]) + (log[row, :, turn - 1] if turn else 0.0)
            weights, velocity = weights / size, velocity / size
            for force in forces:
                velocity = drive.momentum[row] * velocity - drive.lr * weights @ force
                weights = weights + velocity
    return log


def growth_per_turn(log_size: np.ndarray) -> np.ndarray:
    """Return the growth of the logarithm per period, over the later part of a trajectory.

    Complex multipliers make the size swing forever. Weights that vanish smoothly at both ends
    average that out far better than equal ones.
    """
    steps = np.diff(log_size, axis=-1)[..., log_size.shape[-1] // 4 :]
    weight = np.sin(np.pi * (np.arange(steps.shape[-1]) + 0.5) / steps.shape[-1]) ** 2
    return steps @ (weight / weight.sum())
