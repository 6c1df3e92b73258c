"""The paper's criterion: the monodromy matrix of the flow over one period (Theorem 1)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import Scaled, double_precision, log_radii
from resonax.dynamics import Flow, Setting
from resonax.theory.cells import Advance, Values, chunks, take

__all__ = [
    "flow_monodromy",
    "flow_rates",
    "integrate_segments",
    "is_integrable",
    "multiply_segments",
    "segment_counts",
    "stiffness",
]

_ROWS = 256  # segments integrated together
_FEW = 8
_BLOCK = 16384  # segments whose ends are held at once
_MAX_SEGMENTS, _MAX_OF_MANY = 2**17, 2**13  # of a single cell, and of each cell of a map
_STIFFNESS = 6.0  # logarithm by which a solution may grow or fall in one segment
_TOLERANCE = 1e-9
_EDGE = 1e-12  # the ends of a segment are evaluated inside of it, where the law is smooth


@jax.jit
def _stiffness(setting: Setting, values: dict[str, Array]) -> Array:
    """Return `stiffness` of one chunk."""

    def bound(values: dict[str, Array]) -> Array:
        flow = Flow(setting.at(values))
        cycle = flow.setting.process.cycle
        hessian = jax.vmap(flow.hessian_at)(jnp.arange(16) / 16 * cycle)
        trace = jnp.max(jnp.trace(hessian, axis1=1, axis2=2))
        (direct, _), (force, friction) = flow.coefficients()
        return flow.period * (jnp.sqrt(-force * trace) - direct * trace - friction)

    return jax.vmap(bound)(values)


@jax.jit
def _segments(
    setting: Setting, values: dict[str, Array], segment: Array, count: Array
) -> tuple[Array, Array]:
    """Integrate one segment of a period for each row; all rows form one system and share steps.

    The rows are the last axis of the state, so that they are what the processor vectorises over.
    """
    size = setting.size

    def flow_of(values: dict[str, Array]) -> Flow:
        return Flow(setting.at(values))

    length = jax.vmap(lambda v: flow_of(v).period)(values) / count
    coefficients = length * jax.vmap(lambda v: flow_of(v).coefficients(), out_axes=-1)(values)

    def slope(phase: Any, state: Any, args: Any) -> Array:
        del args
        inner = jnp.clip(phase, _EDGE, 1 - _EDGE)

        def hessian_of(values: dict[str, Array], turns: Array) -> Array:
            flow = flow_of(values)
            process = flow.setting.process
            return flow.hessian_at(process.origin + process.cycle * turns)

        hessian = jax.vmap(hessian_of, out_axes=-1)(values, (segment + inner) / count)
        weights, velocity = state
        force = jnp.sum(hessian[:, :, None] * weights[None], axis=1)
        return coefficients[:, 0, None, None] * force + coefficients[:, 1, None, None] * velocity

    start = jnp.eye(2 * size).reshape(2, size, 2 * size, 1)
    import diffrax  # here, as it takes long to load, and only the flow needs it

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Dopri8(),
        t0=0.0,
        t1=1.0,
        dt0=0.1,
        y0=jnp.broadcast_to(start, (2, size, 2 * size, len(segment))),
        stepsize_controller=diffrax.PIDController(
            rtol=_TOLERANCE, atol=_TOLERANCE, norm=lambda error: jnp.max(jnp.abs(error))
        ),
        adjoint=diffrax.ForwardMode(),
        max_steps=2**14,
        throw=False,  # it would call back to the host, and no such program is kept on disk
    )
    assert solution.ys is not None
    done = solution.result == diffrax.RESULTS.successful
    return jnp.moveaxis(solution.ys[0], -1, 0).reshape(-1, 2 * size, 2 * size), done


def multiply_segments(segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiply the segments of each cell, (cells, segments, n, n), the first one first."""
    matrix, exponent = segments[:, 0], np.zeros(len(segments), dtype=int)
    for number in range(1, segments.shape[1]):
        matrix = segments[:, number] @ matrix
        shift = np.frexp(np.abs(matrix).max(axis=(1, 2)))[1]
        matrix, exponent = np.ldexp(matrix, -shift[:, None, None]), exponent + shift
    return matrix, exponent


@double_precision
def stiffness(setting: Setting, values: Values) -> np.ndarray:
    """Return a bound of the logarithmic growth of the flow over one period, for each cell."""
    need = np.empty(len(next(iter(values.values()))))
    for index, count in chunks(need, _ROWS if len(need) > 1 else 1):
        need[index[:count]] = np.asarray(_stiffness(setting, take(values, index)))[:count]
    return need


def is_integrable(need: np.ndarray, *, alone: bool = False) -> np.ndarray:
    """Return which cells, by their `stiffness`, take no more segments than can be integrated.

    ``alone`` says that there is one cell only, which may take longer.
    """
    return need / _STIFFNESS <= (_MAX_SEGMENTS if alone else _MAX_OF_MANY)


def segment_counts(setting: Setting, need: np.ndarray) -> np.ndarray:
    """Return into how many segments, a multiple of the smooth pieces, each cell's period is cut."""
    pieces = setting.process.pieces
    shares = np.maximum(need / _STIFFNESS / pieces, 1.0)
    return pieces * 2 ** np.ceil(np.log2(shares)).astype(int)


@double_precision
def integrate_segments(
    setting: Setting, values: Values, cells: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Return the ends of all segments of some cells, one after the other; NaN where it fails."""
    rows = np.repeat(cells, counts)
    segment = np.concatenate([np.arange(count) for count in counts])
    share = np.repeat(counts, counts).astype(float)
    # Two compiled shapes serve everything: the last rows are repeated to fill up.
    size = _FEW if len(rows) <= _FEW else _ROWS

    def integrated(part: np.ndarray) -> np.ndarray:
        filled = np.concatenate([part, np.full(size - len(part), part[-1])])
        ends, done = _segments(setting, take(values, rows[filled]), segment[filled], share[filled])
        if done:
            return np.asarray(ends)[: len(part)]
        if len(part) == 1:
            return np.full((1, *ends.shape[1:]), np.nan)
        # The rows share their steps: halves tell which of them fails.
        return np.concatenate([integrated(half) for half in np.array_split(part, 2)])

    starts = range(0, len(rows), size)
    return np.concatenate([integrated(np.arange(len(rows))[k : k + size]) for k in starts])


@double_precision
def flow_monodromy(setting: Setting, values: Values, advance: Advance | None = None) -> Scaled:
    """Return the monodromy matrix of the flow of every cell; none may be too stiff."""
    counts = segment_counts(setting, stiffness(setting, values))
    size = 2 * setting.size
    matrix, exponent = np.empty((len(counts), size, size)), np.empty(len(counts), dtype=int)
    order = np.argsort(counts, kind="stable")
    # Blocks of about equal work keep the memory flat, however large the map.
    block = np.cumsum(counts[order]) // _BLOCK
    for cells in np.split(order, np.flatnonzero(np.diff(block)) + 1):
        ends = integrate_segments(setting, values, cells, counts[cells])
        start = np.cumsum(counts[cells]) - counts[cells]
        for number in np.unique(counts[cells]):
            same = counts[cells] == number
            rows = start[same][:, None] + np.arange(number)
            matrix[cells[same]], exponent[cells[same]] = multiply_segments(ends[rows])
        if advance:
            advance(len(cells))
    # Plain arrays: jax would compile a copy of each shape.
    return Scaled(matrix, exponent)  # pyrefly: ignore[bad-argument-type]


@double_precision
def flow_rates(setting: Setting, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the rate per step of every cell; NaN where it cannot be integrated."""
    need = stiffness(setting, values)
    found = is_integrable(need, alone=len(need) == 1)
    rates = np.full(len(found), np.nan)
    if advance and not found.all():
        advance(int((~found).sum()))
    if found.any():
        some = take(values, np.flatnonzero(found))
        periods = some.get("period", np.full(int(found.sum()), float(setting.process.cycle)))
        rates[found] = log_radii(flow_monodromy(setting, some, advance)) / periods
    return rates
