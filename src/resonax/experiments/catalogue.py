"""The paper, figure by figure: what is computed for each, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.experiments.names import IDS, check_names
from resonax.experiments.problem_setting import compute_problem_setting
from resonax.experiments.propositions import compute_propositions
from resonax.experiments.specification import Sweep, read_sweep
from resonax.experiments.spectra import compute_spectra
from resonax.experiments.sweep import (
    compute_sweep,
    sweep_groups,
    sweep_layout,
    sweep_specification,
)
from resonax.experiments.theory_maps import (
    compute_theory_maps,
    theory_layout,
    theory_specification,
)
from resonax.results import Layout

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["IDS", "Experiment", "catalogue", "from_sweep"]

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


def _problem_setting(scale: str) -> Experiment:
    del scale
    return Experiment(
        id="problem-setting",
        title="The problem: regression on inputs that move",
        paper="Fig. 1",
        caption="Left: a regression in one dimension, with the samples of three moments of "
        "training. Right: the Gaussian inputs, whose mean moves over time. The relation between "
        "input and target never changes; only where the inputs lie does.",
        specification={"id": "problem-setting"},
        cells=1,
        whole=compute_problem_setting,
    )


def _spectra(scale: str) -> Experiment:
    steps = 240_000 if scale == "paper" else 48_000
    return Experiment(
        id="spectra",
        title="What the inputs sound like",
        paper="Appendix, details of the experiments",
        caption="A sample path (left) and the power spectral density (right) of the inputs and of "
        "their mean, for each process at three settings. Densities are estimated by Welch's method "
        "and lie on the closed form; the marks are where the process says its peak is.",
        specification={"id": "spectra", "steps": steps},
        cells=12,
        whole=lambda seed: compute_spectra(seed, steps),
    )


def _propositions(scale: str) -> Experiment:
    samples = 20_000 if scale == "paper" else 4_000
    return Experiment(
        id="propositions",
        title="The propositions, checked by hand-written trajectories",
        paper="Prop. 1, Prop. 2, Thm. 1",
        caption="Left: drawn gradients against the linear form of Prop. 1. Middle: the error of "
        "SGD with momentum against the flow, which falls to first order. Right: the growth of long "
        "trajectories against the spectral radius, on both sides of 1.",
        specification={"id": "propositions", "samples": samples},
        cells=1,
        whole=lambda seed: compute_propositions(seed, samples),
    )


def _theory_maps(scale: str) -> Experiment:
    points = 100 if scale == "paper" else 30
    layout = theory_layout(points)
    return Experiment(
        id="theory-maps",
        title="Where the flow diverges",
        paper="Appendix, numerical stability",
        caption="Growth of the flow over momentum and period for step sizes 0.01, 0.005 and 0.001: "
        "high momenta on the left, all momenta on the right, where the dotted frame is the left "
        "panel. The black line is a spectral radius of 1: outside the tongues all converges. "
        "The dashed line on the right is, for each period, the momentum that converges fastest.",
        specification={"id": "theory-maps", **theory_specification(points)},
        cells=3 * points**2 * 5,
        layout=layout,
        compute=lambda region, *_: compute_theory_maps(points, region),
        groups=(tuple(task.number for task in layout.tasks()),),
    )


def _sweep(name: str) -> Callable[[str], Experiment]:
    def build(scale: str) -> Experiment:
        source = files("resonax.experiments") / "specifications" / f"{name}.toml"
        with as_file(source) as path:
            return from_sweep(read_sweep(path, scale=scale))

    return build


_BUILDERS: dict[str, Callable[[str], Experiment]] = {
    "problem-setting": _problem_setting,
    "propositions": _propositions,
    **{
        name: _sweep(name)
        for name in (
            "sinusoid-map",
            "ar2-map",
            "square-samples",
            "switching-variance",
            "switching-dimension",
            "switching-adam",
            "switching-network",
        )
    },
    "theory-maps": _theory_maps,
    **{name: _sweep(name) for name in ("lower-momentum", "smaller-step", "single-sample")},
    "spectra": _spectra,
}


def catalogue(ids: tuple[str, ...] = (), scale: str = "smoke") -> list[Experiment]:
    """Return the experiments of the paper, or those named, at a scale."""
    check_names(ids, scale)
    return [_BUILDERS[name](scale) for name in IDS if not ids or name in ids]
