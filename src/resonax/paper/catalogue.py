"""The experiments of the paper, in the order of the report.

This table is known before any library is loaded. What it names is a function of the scale that
returns an `Experiment`: the one record of how a figure is computed, judged and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from resonax.core.errors import suggest

if TYPE_CHECKING:
    from resonax.sweeps.experiment import Datasets, Experiment, Judge
    from resonax.sweeps.judgement import Claim

__all__ = ["EXPERIMENTS", "IN_PARTS", "SCALES", "catalogue", "check_names", "judge"]

SCALES = ("smoke", "paper")
# Module and function of each record; a test or an extension may enter a function itself.
EXPERIMENTS: dict[str, str | Callable[[str], Experiment]] = {
    "problem-setting": "resonax.paper.problem_setting:problem_setting",
    "propositions": "resonax.paper.propositions:propositions",
    "sinusoid-map": "resonax.paper.maps:sinusoid_map",
    "ar2-map": "resonax.paper.maps:ar2_map",
    "square-samples": "resonax.paper.samples:square_samples",
    "switching-variance": "resonax.paper.switching_trends:switching_variance",
    "switching-dimension": "resonax.paper.switching_trends:switching_dimension",
    "switching-adam": "resonax.paper.switching_adam:switching_adam",
    "switching-network": "resonax.paper.switching_network:switching_network",
    "theory-maps": "resonax.paper.theory_maps:theory_maps",
    "lower-momentum": "resonax.paper.lower_momentum:lower_momentum",
    "smaller-step": "resonax.paper.maps:smaller_step",
    "single-sample": "resonax.paper.samples:single_sample",
    "spectra": "resonax.paper.spectra:spectra",
}

# Figures of several tasks, which processes can share.
IN_PARTS = frozenset(
    (
        "square-samples",
        "switching-variance",
        "switching-dimension",
        "switching-adam",
        "switching-network",
        "theory-maps",
        "lower-momentum",
        "smaller-step",
        "single-sample",
    )
)


def check_names(ids: Iterable[str], scale: str) -> None:
    """Raise `ArgumentError` for a figure or a scale that there is not."""
    for name in ids:
        if name not in EXPERIMENTS:
            raise suggest("figure", name, EXPERIMENTS)
    if scale not in SCALES:
        raise suggest("scale", scale, SCALES)


def catalogue(ids: tuple[str, ...] = (), scale: str = "smoke") -> list[Experiment]:
    """Return the experiments of the paper, or those named, at a scale."""
    check_names(ids, scale)
    chosen = [entry for name, entry in EXPERIMENTS.items() if not ids or name in ids]
    return [(resolve_name(entry) if isinstance(entry, str) else entry)(scale) for entry in chosen]


def judge(
    experiments: Sequence[Experiment], data: Datasets, judged: dict[Judge, Claim] | None = None
) -> list[Claim]:
    """Return every claim on these experiments for which the results are there.

    ``judged`` keeps what it returns, and a claim that is in it already is not judged again.
    """
    judged = {} if judged is None else judged
    found = []
    for experiment in experiments:
        for one in experiment.judges:
            if one not in judged and all(name in data for name in (experiment.id, *one.also)):
                judged[one] = one.function(data)
            found += [judged[one]] if one in judged else []
    return found
