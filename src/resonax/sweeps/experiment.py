"""An experiment: how one figure is computed, stored, judged and drawn."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resonax.core.algebra import on_the_cpu
from resonax.run.executors import Advance
from resonax.spec.sweeps import Sweep
from resonax.store import Layout
from resonax.sweeps.cost import estimate_cost
from resonax.sweeps.judgement import Claim
from resonax.sweeps.sweep import (
    compute_sweep,
    compute_theory,
    sweep_layout,
    sweep_specification,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = [
    "Arrays",
    "Datasets",
    "Experiment",
    "Judge",
    "compute_at_once",
    "drawn_by",
    "from_sweep",
]

Datasets = Mapping[str, "xr.Dataset"]  # results by the id of their experiment
Arrays = dict[str, np.ndarray]
# Arguments: the region of a task, the seed, whether to use double precision, and a function to call
# with the share just finished.
Compute = Callable[[Mapping[str, slice], int, bool, Advance], Arrays]


class Judge(NamedTuple):
    """A function from results to a claim, and the ids of other experiments that it needs."""

    function: Callable[[Datasets], Claim]
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """How one figure is computed, stored, judged and drawn; can be pickled.

    Attributes
    ----------
    id, title, caption
        Name of the experiment; title and caption of its figure.
    specification
        All that the results depend on, as plain values.
    layout
        Variables that are stored, and how they are cut into tasks.
    compute
        Function that returns the variables of a task. Its arguments are the region of the task, the
        seed, whether to use double precision, and a function to call with the share of the task
        just finished.
    also
        Functions like ``compute`` for further variables of each task.
    draw
        Function from the dataset to the figure; not needed for a sweep.
    judges
        Functions that judge claims about the results.
    attributes
        Attributes of the dataset, for figures and judges.
    paper
        Figure of the paper.
    cells, runs
        Number of simulated cells, and of independent runs of each.
    readings, deviations
        How ambiguities of the paper are resolved, by panel; and deviations from the paper.
    labels
        Labels of panels in figures, if they differ from the names.
    networks
        Whether the experiment trains networks.
    seconds
        Approximate time of a task on one core; long tasks are started first.
    sweep
        The sweep, if the experiment is one.
    """

    id: str
    title: str
    caption: str
    specification: Mapping[str, Any]
    layout: Layout
    compute: Compute
    also: tuple[Compute, ...] = ()
    draw: Callable[[xr.Dataset], Figure] | None = None
    judges: tuple[Judge, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    paper: str = ""
    cells: int = 1
    runs: int | None = None
    readings: tuple[tuple[str, str], ...] = ()
    deviations: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    networks: bool = False
    seconds: float = 1.0
    sweep: Sweep | None = None

    @property
    def parts(self) -> tuple[Compute, ...]:
        """All functions that compute variables of a task."""
        return self.compute, *self.also


def drawn_by(name: str) -> Callable[[xr.Dataset], Figure]:
    """Return a ``draw`` that imports ``module:function`` when it is called."""
    return partial(_draw, name)


def _draw(name: str, dataset: xr.Dataset) -> Figure:
    return pkgutil.resolve_name(name)(dataset)


def compute_at_once(function: Callable[[int], Arrays]) -> Callable[..., Arrays]:
    """Return the ``compute`` of an experiment with one task, from a function of the seed."""
    return partial(_compute_at_once, function)


def _compute_at_once(
    function: Callable[[int], Arrays],
    region: Mapping[str, slice],
    seed: int,
    double: bool,
    advance: Advance,
) -> Arrays:
    del region, double, advance
    return on_the_cpu(function)(seed)


def _compute(
    sweep: Sweep, region: Mapping[str, slice], seed: int, double: bool, advance: Advance
) -> Arrays:
    return compute_sweep(sweep, region, seed=seed, double=double, advance=advance)


def _compute_theory(
    sweep: Sweep, criterion: str, region: Mapping[str, slice], *_: object
) -> Arrays:
    return compute_theory(sweep, region, criterion)


def from_sweep(sweep: Sweep, judges: tuple[Judge, ...] = ()) -> Experiment:
    """Return the experiment that a sweep describes, with the judges of its claims."""
    points, cost = sweep.points(), estimate_cost(sweep)
    kinds = {sweep.merged(panel, "model").get("kind") for panel in sweep.panels}
    return Experiment(
        id=sweep.id,
        title=sweep.title or sweep.id,
        caption=" ".join(sweep.caption.split()),
        specification=sweep_specification(sweep),
        layout=sweep_layout(sweep),
        compute=partial(_compute, sweep),
        also=tuple(
            partial(_compute_theory, sweep, name)
            for name in (sweep.theory.criteria if sweep.theory else ())
        ),
        judges=judges,
        paper=sweep.paper,
        cells=len(sweep.panels) * int(np.prod([len(array) for array in points.values()])),
        runs=sweep.run.runs,
        readings=tuple((panel.name, panel.reading) for panel in sweep.panels if panel.reading),
        deviations=sweep.deviations,
        labels={panel.name: panel.label for panel in sweep.panels if panel.label},
        networks="network" in kinds,
        seconds=cost.seconds / cost.tasks,
        sweep=sweep,
    )
