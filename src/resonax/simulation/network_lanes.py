"""Networks by lanes: first weights by jax, all steps by a program of `resonax.lanes`."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.lanes import (
    Fleet,
    LawForm,
    Plan,
    ProcessStep,
    Slots,
    Unsupported,
    host_machine,
    trace_process,
    trace_update,
)
from resonax.learners import Network
from resonax.simulation.batches import CHOICE, INPUT, NOISE, PROCESS, Gaussian, Law, split
from resonax.simulation.lane_laws import LawsAhead, law_form, law_table, merge_components
from resonax.simulation.network import first_layers, first_normals, log_mean_loss
from resonax.simulation.network_batches import TEST, TEST_CHOICE, TEST_ROWS
from resonax.simulation.position_form import has_positions, init_state, update_weights
from resonax.simulation.schedule import BLOCK, Advance, run_windows
from resonax.simulation.training import Training
from resonax.simulation.walk import (
    Grid,
    Loop,
    begin_walk,
    cell_at,
    has_diagonal_roots,
    vmap_cells,
)
from resonax.threads import count_threads

__all__ = ["plan_networks", "run_lanes"]

_SLOTS = Slots(PROCESS, INPUT, CHOICE, NOISE, TEST, TEST_CHOICE)
_MOST_COMPONENTS = 256  # of a mixture, which are tried one by one
_MOST_SCRATCH = 2**20  # numbers beside a network: of its batch, its random numbers, its units


class _Start(NamedTuple):
    """All networks before the first step, with leading axes (paths, cells of a path)."""

    weights: Array
    states: list[Array]
    numbers: Array
    process: Array  # numbers and states of their processes, or nothing


def _stationary(training: Training) -> Law:
    """Return the law of an input at a random time."""
    return split(training.process.stationary(), has_diagonal_roots(training.process))


@functools.partial(jax.jit, static_argnames=("loop", "lanes", "walks"))
def _begin(
    training: Training, grid: Grid, *, loop: Loop, lanes: int, walks: bool
) -> tuple[_Start, Any, Array]:
    """Return all networks and processes before the first step, and the laws of the tests.

    ``walks``: whether the processes take their steps in lanes.
    """
    dim, model = training.process.dim, training.model
    assert isinstance(model, Network)

    state = begin_walk(training, grid, loop)[0]
    alike = loop._replace(law_varies=True)  # each cell has all that it needs

    def begin(values: Any, given: Array, state: Any) -> _Start:
        layers = first_layers(given, dim, model.hidden)
        weights = jnp.concatenate([part.ravel() for layer in layers for part in layer])
        cell = cell_at(training, values)
        slope = 2 * grid.scale(loop.rows, values) / loop.rows * _scale_slope(cell.optimizer)
        numbers = [*jax.tree.leaves(cell.optimizer), jnp.sqrt(cell.noise), slope]
        states = jax.tree.leaves(init_state(cell.optimizer, weights))
        process = [jnp.ravel(leaf) for leaf in jax.tree.leaves((cell.process, state)) if walks]
        return _Start(
            weights,
            states,
            jnp.stack([jnp.asarray(n, float) for n in numbers]),
            jnp.concatenate([jnp.zeros(0), *process], dtype=float),
        )

    given = first_normals(grid, dim, model.hidden)
    cells = len(next(iter(grid.shared.values())))
    shape = len(grid.keys), cells
    states = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape[2:])), state)
    start = vmap_cells(begin, grid, alike)(given, states)
    tests = vmap_cells(lambda values, _: _stationary(cell_at(training, values)), grid, loop)([])
    return start, state, law_table(tests, lanes)


_plans: dict[Any, Plan] = {}  # by all that a plan depends on


def plan_networks(training: Training, loop: Loop) -> Plan:
    """Return the plan of the program that trains these networks, or raise `Unsupported`.

    Tracing the process and the optimizer takes some 30 ms, and a sweep asks for the same plan again
    and again: it depends on the structure of what is trained, and on none of its numbers.
    """
    leaves, structure = jax.tree.flatten(training)
    shapes = tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    key = structure, shapes, loop, jnp.zeros(()).dtype
    if key not in _plans:
        _plans[key] = _plan(training, loop)
    return _plans[key]


def _law_form(training: Training) -> tuple[LawForm, ProcessStep | None]:
    """Return the form of the law at a step, and the step of the process for lanes.

    None in its place where jax computes the laws ahead: laws of several components, recordings, and
    processes that take an operation that lanes do not have.
    """
    process = training.process
    diagonal = has_diagonal_roots(process)
    state = jax.eval_shape(process.init, jnp.zeros(process.init_normals))

    def step(process: Any, state: Any, normals: Array, index: Array) -> tuple[Any, Law]:
        state, law = process.step(normals, state, index)
        return state, split(law, diagonal)

    _, law = jax.eval_shape(step, process, state, jnp.zeros(process.step_normals), 0)
    form = law_form(law, process.dim)
    if not isinstance(law, Gaussian):
        return form, None
    try:
        return form, trace_process(step, process, state, process.step_normals)
    except Unsupported:
        return form, None


def _scale_slope(optimizer: Any) -> Any:
    """Return the factor of all slopes that `_update` takes."""
    return optimizer.alpha if has_positions(optimizer) else 1.0


def _update(
    optimizer: Any, slope: Array, weights: Array, state: Any, *, decays: bool
) -> tuple[Array, Any]:
    r"""Return what `update_weights` returns, for slopes that are multiplied by `_scale_slope`.

    Heavy ball is :math:`\theta_k + (\mu(\theta_k-\theta_{k-1}) - \alpha h_k)`. With
    :math:`\alpha h_k` given it takes a difference, a multiply-add and a sum for each weight, of
    which only the last rounds to the digits of the weight.
    """
    if not has_positions(optimizer):
        return update_weights(optimizer, slope, weights, state, decays=decays)
    if decays:
        slope = slope + (optimizer.alpha * optimizer.weight_decay) * weights
    return weights + (optimizer.momentum * (weights - state) - slope), weights


def _plan(training: Training, loop: Loop) -> Plan:
    """Return the plan, made anew."""
    machine, dim, model = host_machine(), training.process.dim, training.model
    assert isinstance(model, Network)
    if not machine.bits:
        raise Unsupported(f"the processor {machine.cpu} has no fused multiply-add")

    test_law = law_form(jax.eval_shape(_stationary, training), dim)
    law, process = _law_form(training) if loop.ordered else (test_law, None)
    double = jnp.zeros(()).dtype == jnp.float64
    plan = Plan(
        widths=(dim, *model.hidden, 1),
        rows=loop.rows,
        test_rows=TEST_ROWS,
        law=law,
        test_law=test_law,
        update=trace_update(
            functools.partial(_update, decays=loop.decays), training.optimizer, init_state
        ),
        process=process,
        slots=_SLOTS,
        double=double,
        lanes=machine.lanes(double),
        sums=machine.sums,
    )
    if max(plan.law.components, plan.test_law.components) > _MOST_COMPONENTS:
        raise Unsupported(f"its inputs have a law of more than {_MOST_COMPONENTS} components")
    if sum(plan.areas().values()) > _MOST_SCRATCH:
        raise Unsupported("its layers and batches are too large")
    return plan


def _folder() -> Path | None:
    """Return where compiled programs are kept: with those of jax."""
    kept = jax.config.jax_compilation_cache_dir  # pyrefly: ignore[missing-attribute]
    return Path(kept) / "lanes" if kept else None


class _Runner:
    """Networks and processes of a grid, on their way through some blocks of steps."""

    def __init__(
        self,
        plan: Plan,
        training: Training,
        grid: Grid,
        loop: Loop,
        paths: int,
        blocks: int,
    ) -> None:
        walks = plan.process is not None
        start, process, test_law = _begin(training, grid, loop=loop, lanes=plan.lanes, walks=walks)
        cells = len(next(iter(grid.shared.values()))) if loop.law_varies else 1
        shape = len(grid.keys) // plan.lanes, cells, plan.law.size, plan.lanes
        self._laws = None if walks else LawsAhead(training, grid, loop, process, shape, blocks)
        form, self._test_law = merge_components(plan.test_law, np.asarray(test_law))
        plan = replace(plan, test_law=form)
        arrays = jax.tree.map(lambda leaf: np.asarray(leaf)[:paths], start)
        keys = np.asarray(grid.keys)[:paths]
        self.fleet = Fleet(plan, keys, *arrays, threads=count_threads(), folder=_folder())
        self.start = np.zeros(0)

    @property
    def total(self) -> np.ndarray:
        """Sums of the test losses in a window."""
        return self.fleet.total

    def reset(self) -> Self:
        """Begin a window."""
        self.fleet.reset()
        return self

    def advance(self, first: int, blocks: int, record: bool) -> _Runner:
        """Take some blocks of steps. The first block of all is recorded for the start."""
        if first == 0:
            self._take(0, BLOCK, True)
            self.start = log_mean_loss(self, BLOCK)
            first, blocks = BLOCK, blocks - 1
            if not record:
                self.reset()
        self._take(first, blocks * BLOCK, record)
        return self

    def _take(self, first: int, steps: int, record: bool) -> None:
        if self._laws is None:
            return self.fleet.advance(first, steps, None, self._test_law, record=record)
        end = first + steps
        while first < end:
            steps, laws = self._laws.take(end - first)
            self.fleet.advance(first, steps, laws, self._test_law, record=record)
            first += steps
        return None


def run_lanes(
    plan: Plan,
    training: Training,
    grid: Grid,
    loop: Loop,
    paths: int,
    steps: int,
    window: int,
    advance: Advance,
) -> list[np.ndarray]:
    """Return what `run_networks` returns, for the first ``paths`` of a grid."""
    runner = _Runner(plan, training, grid, loop, paths, steps // BLOCK)
    measure = functools.partial(log_mean_loss, steps=window)
    windows = run_windows(runner, _Runner.advance, measure, steps, window, advance)
    return [runner.start, *windows]
