"""Networks on a CPU, trained by the loops of `network_loops`, which Numba compiles.

The loop of jax (`network`) trains any network by any optimizer; this one is several times faster
for small networks and the optimizers of the paper. jax draws the batches of both, so that they
agree to rounding.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.threads import count_threads
from resonax.learners import Momentum, Network, Transform
from resonax.simulation.batches import BLOCK
from resonax.simulation.cells import Grid, Loop, Training, begin_walk, cell_at, vmap_cells
from resonax.simulation.network import first_layers, first_normals
from resonax.simulation.network_batches import Batch, Laws, draw_batches, draw_tests

__all__ = ["CompiledNetworks", "has_numba", "unsupported_reason"]

_LANES = 16  # networks that are trained side by side; grids have a multiple of it
_MAX_UNITS = 64  # units of a layer: the products of larger matrices are as fast by jax
_ADAM = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "eps_root": 0.0}  # as optax has them


def has_numba() -> bool:
    """Return whether numba is installed."""
    return importlib.util.find_spec("numba") is not None


def unsupported_reason(training: Training, grid: Grid) -> str | None:
    """Return why Numba cannot train some networks, as the end of a sentence; None if it can."""
    model = training.model
    assert isinstance(model, Network)
    if {device.platform for device in grid.keys.devices()} != {"cpu"}:
        return "they are on a GPU"
    if not has_numba():
        return 'numba is not installed: `pip install "resonax[fast]"`'
    if not (isinstance(training.optimizer, Momentum) or _is_adam(training.optimizer)):
        return "only SGD with momentum and Adam are written for it"
    if max(training.process.dim, *model.hidden, 1) > _MAX_UNITS:
        return f"layers of more than {_MAX_UNITS} units are left to jax"
    return None


def _is_adam(optimizer: Any) -> bool:
    import optax

    is_adam = isinstance(optimizer, Transform) and optimizer.make is optax.adam
    return is_adam and set(optimizer.hyperparameters) <= {"learning_rate", *_ADAM}


def _numbers_of(optimizer: Any) -> list[Any]:
    """Return the numbers of an optimizer in the order in which `network_loops` takes them."""
    if isinstance(optimizer, Momentum):
        first_alpha = optimizer.lr if optimizer.full_start else optimizer.alpha
        rest = optimizer.alpha, optimizer.kappa, optimizer.beta, optimizer.weight_decay
        return [optimizer.momentum, first_alpha, *rest]
    named = {**_ADAM, **optimizer.hyperparameters}
    return [named[name] for name in ("learning_rate", *_ADAM)]


@functools.partial(jax.jit, static_argnames=("loop",))
def _begin(training: Training, grid: Grid, *, loop: Loop) -> tuple[Any, Array, Array]:
    """Return the state of the processes, and weights and numbers of all networks.

    Both are (cells of a path, paths, ...). The weights of a layer are followed by its bias, and the
    numbers of the optimizer follow the factor of the gradient.
    """
    dim, model = training.process.dim, training.model
    assert isinstance(model, Network)

    def begin(values: Any, given: Array) -> tuple[Array, Array]:
        layers = first_layers(given, dim, model.hidden)
        weights = jnp.concatenate([part.ravel() for layer in layers for part in layer])
        scale = grid.scale(loop.rows, values)
        numbers = [scale, *_numbers_of(cell_at(training, values).optimizer)]
        return weights, jnp.stack([jnp.asarray(number, float) for number in numbers])

    given = first_normals(grid, dim, model.hidden)
    weights, numbers = vmap_cells(begin, grid, loop._replace(law_varies=True))(given)
    return begin_walk(training, grid, loop), weights, numbers


@functools.partial(jax.jit, static_argnames=("loop", "record"))
def _draw(
    training: Training, grid: Grid, process: Any, first: Array, *, loop: Loop, record: bool
) -> tuple[Any, Batch, Batch]:
    """Return the state of the processes after a block of steps, its batches and its tests.

    Inputs are (groups, steps, inputs, rows, 16) and outputs (groups, steps, rows, 16). There are
    tests of no step if it is not recorded.
    """
    laws = Laws.of(training, grid, loop)
    cells = len(next(iter(grid.shared.values()))), len(grid.keys)

    def arranged(leaf: Array) -> Array:
        each = jnp.broadcast_to(leaf, (len(leaf), *cells, *leaf.shape[3:]))
        count = cells[0] * cells[1] // _LANES
        groups = each.reshape(len(leaf), count, _LANES, *leaf.shape[3:])
        return groups.transpose(1, 0, *range(groups.ndim - 1, 2, -1), 2)

    process, batches = draw_batches(training, grid, loop, laws, process, first)
    tests = Batch(*(leaf[:0] for leaf in batches))
    if record:
        tests = draw_tests(training, grid, loop, laws, first)
    return process, Batch(*map(arranged, batches)), Batch(*map(arranged, tests))


class CompiledNetworks:
    """All networks of a grid, in training: a state as `run_windows` takes it, changed in place."""

    def __init__(self, training: Training, grid: Grid, loop: Loop) -> None:
        from resonax.simulation import network_loops  # loads numba

        model = training.model
        assert isinstance(model, Network)
        self._draw = functools.partial(_draw, training, grid, loop=loop)
        self._process, weights, numbers = _begin(training, grid, loop=loop)
        self._cells = weights.shape[:2]
        self._widths = np.array([training.process.dim, *model.hidden, 1])
        self._weights, self._numbers = _in_groups(weights), _in_groups(numbers)
        groups, count, _ = self._weights.shape
        is_momentum = isinstance(training.optimizer, Momentum)
        kept = count if is_momentum else 2 * count + 2
        self._memory = np.zeros((groups, kept, _LANES), self._weights.dtype)
        self._total = np.zeros((groups, 1, _LANES), self._weights.dtype)
        move = network_loops.move_by_momentum if is_momentum else network_loops.move_by_adam
        self._train = functools.partial(network_loops.train, move)

    @property
    def total(self) -> np.ndarray:
        """Sums of the test losses in a window, (cells of a path, paths)."""
        return self._total.reshape(self._cells)

    def reset(self) -> Self:
        """Begin a window."""
        self._total[:] = 0.0
        return self

    def step(self, first: int, blocks: int, record: bool) -> Self:
        """Take some blocks of steps; with ``record``, sum the test losses up."""
        groups = len(self._weights)
        threads = min(count_threads(), groups)
        ends = [groups * part // threads for part in range(threads + 1)]
        own = self._weights, self._memory, self._numbers, self._total
        with ThreadPoolExecutor(threads) as pool:
            for start in range(first, first + blocks * BLOCK, BLOCK):
                self._process, *drawn = self._draw(self._process, start, record=record)
                given = [np.asarray(leaf) for batch in drawn for leaf in batch]
                jobs = [
                    pool.submit(self._train, *part, start == 0, self._widths, *given, *own)
                    for part in itertools.pairwise(ends)
                ]
                for job in jobs:
                    job.result()
        return self


def _in_groups(array: Array) -> np.ndarray:
    """Return (cells of a path, paths, n) as (groups, n, networks of a group)."""
    flat = np.asarray(array).reshape(-1, _LANES, array.shape[-1])
    return np.ascontiguousarray(flat.swapaxes(1, 2))
