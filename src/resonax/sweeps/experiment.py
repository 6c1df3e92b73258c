"""An experiment: what is computed for one figure, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.results import Layout
from resonax.sweeps.specification import Sweep
from resonax.sweeps.sweep import compute_sweep, sweep_groups, sweep_layout, sweep_specification

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Experiment", "from_sweep"]

Advance = Callable[[float], None]


@dataclass(frozen=True)
class Experiment:
    """One figure: its words, its layout, and the function that computes a task of it.

    An experiment without a layout is made whole, by ``whole``, in one part; the parts of another
    are the tasks of its layout. Parts of one group run the same compiled programs.
    """

    id: str
    title: str
    paper: str
    caption: str
    specification: Mapping[str, Any]
    cells: int
    runs: int | None = None
    readings: tuple[tuple[str, str], ...] = ()
    deviations: tuple[str, ...] = ()
    layout: Layout | None = None
    compute: Callable[[Mapping[str, slice], int, bool, Advance], dict[str, np.ndarray]] | None = (
        None
    )
    whole: Callable[[int], xr.Dataset] | None = None
    networks: bool = False
    groups: tuple[tuple[int, ...], ...] = ((0,),)


def from_sweep(sweep: Sweep) -> Experiment:
    """Return the experiment that a sweep describes."""
    points = sweep.points()
    kinds = {sweep.merged(panel, "model").get("kind") for panel in sweep.panels}
    return Experiment(
        id=sweep.id,
        title=sweep.title or sweep.id,
        paper=sweep.paper,
        caption=" ".join(sweep.caption.split()),
        specification=sweep_specification(sweep),
        cells=len(sweep.panels) * int(np.prod([len(array) for array in points.values()])),
        runs=sweep.run.runs,
        readings=tuple((panel.name, panel.reading) for panel in sweep.panels if panel.reading),
        deviations=sweep.deviations,
        layout=sweep_layout(sweep),
        compute=lambda region, seed, double, advance: compute_sweep(
            sweep, region, seed=seed, double=double, advance=advance
        ),
        networks="network" in kinds,
        groups=sweep_groups(sweep),
    )
