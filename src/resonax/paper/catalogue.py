"""The paper, figure by figure: what is computed for each, and how it is stored."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import as_file, files

from resonax.paper.names import IDS, check_names
from resonax.paper.problem_setting import compute_problem_setting
from resonax.paper.propositions import compute_propositions
from resonax.paper.spectra import compute_spectra
from resonax.paper.theory_maps import (
    compute_theory_maps,
    theory_layout,
    theory_specification,
)
from resonax.sweeps.experiment import Experiment, from_sweep
from resonax.sweeps.specification import read_sweep

__all__ = ["IDS", "catalogue"]


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
        source = files("resonax.paper") / "specifications" / f"{name}.toml"
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
