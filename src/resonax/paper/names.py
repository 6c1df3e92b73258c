"""The names of the paper's figures, in their order: known before any library is loaded."""

from __future__ import annotations

from resonax.checks import suggest

__all__ = ["IDS", "SCALES", "check_names"]

SCALES = ("smoke", "paper")
IDS = (
    "problem-setting",
    "propositions",
    "sinusoid-map",
    "ar2-map",
    "square-samples",
    "switching-variance",
    "switching-dimension",
    "switching-adam",
    "switching-network",
    "theory-maps",
    "lower-momentum",
    "smaller-step",
    "single-sample",
    "spectra",
)


def check_names(ids: tuple[str, ...], scale: str) -> None:
    """Raise `ArgumentError` for a figure or a scale that there is not."""
    for name in ids:
        if name not in IDS:
            raise suggest("figure", name, IDS)
    if scale not in SCALES:
        raise suggest("scale", scale, SCALES)
