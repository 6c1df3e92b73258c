"""Names of panels and axes in the figures of sweeps, some of which users gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resonax.core.labels import LABELS, axis_label
from resonax.figures.style import escape_text

if TYPE_CHECKING:
    import xarray as xr

    from resonax.sweeps.panels import StoredPanel

__all__ = ["axis_words", "panel_words", "response_words", "value_words"]


def axis_words(name: str) -> str:
    """Return the label of an axis: ours where we have one, else its name."""
    return axis_label(name) if name in LABELS else escape_text(name)


def value_words(name: str, number: float) -> str:
    """Return one value of an axis, as a legend names a curve.

    Examples
    --------
    >>> value_words("momentum", 0.95), value_words("amplitude", 0.5)
    ('μ = 0.95', 'v = 0.25')
    """
    if name == "amplitude":
        return f"v = {number**2:.3g}"  # the variance of the mean, as the paper counts
    return f"{LABELS[name][1] if name in LABELS else escape_text(name)} = {number:.4g}"


def panel_words(dataset: xr.Dataset, name: str) -> str:
    """Return what a figure calls a panel: its label, or its name."""
    panel = dataset.sel(panel=name)
    return escape_text(panel.label.item() if "label" in panel.coords else name)


def response_words(panel: StoredPanel) -> str:
    """Return what the response of a panel is."""
    is_network = panel.model.get("kind") == "network"
    return "test loss" if is_network else "distance from the solution"
