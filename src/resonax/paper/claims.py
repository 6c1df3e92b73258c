"""The claims of the paper, judged from the stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from resonax.paper.judge_curves import (
    judge_adam,
    judge_dimension,
    judge_low_momentum,
    judge_network,
    judge_variance,
)
from resonax.paper.judge_maps import (
    judge_best_momentum,
    judge_contour,
    judge_own_boundary,
    judge_step_size,
)
from resonax.paper.judge_samples import judge_peaks, judge_samples, judge_shift
from resonax.paper.judgement import Claim
from resonax.paper.propositions import judge_propositions
from resonax.paper.spectra import judge_spectral_peaks

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["judge"]

Datasets = Mapping[str, "xr.Dataset"]


# The judges in the order of the table, each with the results that it needs.
_JUDGES: tuple[tuple[tuple[str, ...], Callable[[Datasets], Claim | list[Claim]]], ...] = (
    (("propositions",), lambda data: judge_propositions(data["propositions"])),
    (("sinusoid-map", "ar2-map"), judge_contour),
    (("sinusoid-map", "ar2-map"), judge_own_boundary),
    (("lower-momentum",), judge_low_momentum),
    (("smaller-step",), judge_step_size),
    (("square-samples", "single-sample", "smaller-step"), judge_samples),
    (("square-samples",), judge_peaks),
    (("square-samples",), judge_shift),
    (("switching-variance",), judge_variance),
    (("switching-dimension",), judge_dimension),
    (("switching-adam",), judge_adam),
    (("switching-network",), judge_network),
    (("theory-maps",), judge_best_momentum),
    (("spectra",), lambda data: judge_spectral_peaks(data["spectra"])),
)


def judge(data: Datasets) -> list[Claim]:
    """Return every claim for which the results are there."""
    claims: list[Claim] = []
    for needed, function in _JUDGES:
        if all(name in data for name in needed):
            found = function(data)
            claims.extend(found if isinstance(found, list) else [found])
    return claims
