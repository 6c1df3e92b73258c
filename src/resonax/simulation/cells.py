"""What is simulated: the training of one cell, the grid of cells, and their inputs over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.values import static, value
from resonax.dynamics.problem import Problem, check_choice
from resonax.learners import Momentum, Network
from resonax.simulation.batches import Needs, needs_of, split
from resonax.simulation.random_numbers import Purpose, normals
from resonax.streams import Process

__all__ = [
    "Grid",
    "Loop",
    "Training",
    "begin_walk",
    "cell_at",
    "shuffled_laws",
    "stationary_laws",
    "vmap_cells",
    "walk",
]


@value
class Training(Problem):
    r"""A problem and the law of its first weights.

    The weights of a linear model begin at :math:`\theta_0`. Both :math:`\theta_0` and the target
    :math:`\theta^*` have independent components, uniform in -start..start or, with
    ``start_law="normal"``, normal with variance start.

    Where the target drifts, :math:`\theta^*` is what it drifts around, and distances are those
    before an update from the best weights of the law from which its first row comes.

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


class Grid(NamedTuple):
    """Cells: paths that differ in some numbers, and the cells of each, which differ in others."""

    columns: dict[str, Array]  # (paths,) each
    shared: dict[str, Array]  # (cells of a path,) each
    keys: Array  # (paths,)
    summed: Array  # 1 where the loss is summed over the batch, 0 for its mean

    def scale(self, batch: ArrayLike, values: Mapping[str, Any]) -> Array:
        """Return the factor of the gradient of the mean loss in a cell of some values."""
        return 1 + values.get("summed", self.summed) * (jnp.asarray(batch) - 1)


class Loop(NamedTuple):
    """The static configuration of a compiled loop."""

    law_varies: bool  # whether cells of one path differ in the law of their inputs
    batch_varies: bool  # whether cells of one path differ in how many of its inputs they take
    dim_varies: bool  # whether they differ in how many coordinates of the inputs they see
    gram: bool  # whether a path's matrix H is formed, for many cells to share
    rows: int  # inputs of the largest batch
    scatter: bool  # whether their sufficient statistics are drawn in their place
    ordered: bool  # whether inputs come in the order of the process, or shuffled
    mixed: bool  # whether their law is a mixture
    noisy: bool  # whether targets have noise
    decays: bool  # whether weights decay
    drifts: bool = False  # whether the best weights move with the inputs

    def needs(self, process: Process) -> Needs:
        """Return how many random numbers a step of a path takes."""
        needs = needs_of(
            process.dim,
            self.rows,
            process=process.step_normals if self.ordered else 0,
            scatter=self.scatter,
            choice=self.mixed,
        )
        return needs if self.noisy else needs._replace(noise=0)


def cell_at(training: Training, values: dict[str, Any]) -> Training:
    """Return what one cell trains.

    ``dim`` is no number of it: inputs beyond it are masked. Nor is ``summed``: see `Grid.scale`.
    """
    apart = ("dim", "summed")
    return training.at({name: number for name, number in values.items() if name not in apart})


def vmap_cells(function: Any, grid: Grid, loop: Loop) -> Any:
    """Map ``function(values, numbers, ...)`` over paths, and their cells where laws vary.

    ``numbers`` are a path's random numbers, arrays with the paths first; the rest has leading axes
    (cells of a path or 1, paths), and so has the result: what is last is what the processor
    vectorises over, and paths are many.
    """

    def over_paths(shared: dict[str, Array], numbers: Any, *rest: Any) -> Any:
        def one(columns: dict[str, Array], *given: Any) -> Any:
            return function({**columns, **shared}, *given)

        return jax.vmap(one)(grid.columns, numbers, *rest)

    def over_cells(numbers: Any, *rest: Any) -> Any:
        if loop.law_varies:
            each = jax.vmap(lambda shared, *inner: over_paths(shared, numbers, *inner))
            return each(grid.shared, *rest)
        alone = jax.tree.map(lambda leaf: leaf[0], rest)
        return jax.tree.map(lambda leaf: leaf[None], over_paths({}, numbers, *alone))

    return over_cells


def has_diagonal_roots(process: Process) -> bool:
    """Return whether the coordinates of an input are independent, given the mean."""
    return np.ndim(getattr(process, "variance", 0.0)) < 2


def walk(
    training: Training, grid: Grid, loop: Loop, state: Any, step: Array, normals: Array
) -> tuple[Any, Any]:
    """Return the state of the processes after a step, and the law of the inputs in it.

    The law has leading axes (cells of a path or 1, paths).
    """
    diagonal = has_diagonal_roots(training.process)

    def one(values: Any, given: Array, state: Any) -> tuple[Any, Any]:
        state, law = cell_at(training, values).process.step(given, state, step)
        return state, split(law, diagonal)

    return vmap_cells(one, grid, loop)(normals, state)


def shuffled_laws(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the law of inputs in random order, (cells of a path or 1, paths).

    It may need the root of a matrix: a loop over blocks computes it once, before the first.
    """
    diagonal = has_diagonal_roots(training.process)

    def one(values: Any, _: Any) -> Any:
        process = cell_at(training, values).process
        return split(process.mixture() if loop.drifts else process.stationary(), diagonal)

    return vmap_cells(one, grid, loop)(())


def stationary_laws(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the stationary law of the inputs with its roots, from which tests are drawn."""

    def one(values: Any, _: Any) -> Any:
        return cell_at(training, values).process.stationary()

    return vmap_cells(one, grid, loop)(())


def begin_walk(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the state of the processes before the first step."""

    def begin(values: Any, given: Array) -> Any:
        return cell_at(training, values).process.init(given)

    given = normals(grid.keys, 0, Purpose.BEGIN, (training.process.init_normals,))
    return vmap_cells(begin, grid, loop)(given)
