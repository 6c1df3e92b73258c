"""A stability map as a picture."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from resonax.core.labels import CRITERIA, LABELS, axis_label
from resonax.figures.style import DIVERGING, GREY, INK, PALE, STYLE, new_figure
from resonax.figures.ticks import cell_borders, log_axis

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["add_scale", "paint", "plot_map"]

_RATE_STEPS = 1000  # rates are shown per this many steps: numbers a person can hold in mind


def _title(dataset: xr.Dataset) -> str:
    """Say in two lines what is shown and what is held fixed."""
    setting = json.loads(dataset.attrs["setting"])
    process, optimizer = setting["process"], setting["optimizer"]
    fixed = []
    for name, home in (
        ("lr", optimizer),
        ("momentum", optimizer),
        ("period", process),
        ("amplitude", process),
        ("variance", process),
        ("batch", setting),
    ):
        if isinstance(home.get(name), int | float):
            symbol = LABELS[name][1] if name in LABELS else name
            fixed.append(f"{symbol} = {home[name]:.4g}")
    method = "Nesterov momentum" if optimizer["lookahead"] else "momentum"
    criterion = dataset.attrs["criterion"]
    return (
        f"SGD with {method}, {dataset.attrs['process']} inputs ({', '.join(fixed)})\n"
        f"criterion {criterion}: {CRITERIA[criterion]}"
    )


def _reasons(dataset: xr.Dataset) -> str:
    """Return why cells are missing, without the advice."""
    if "missing" not in dataset or not dataset.missing.any():
        return ""
    return ", ".join(reason.partition(":")[0] for reason in dataset.resonax.reasons())


def _geometric(values: np.ndarray) -> bool:
    """Whether neighbours have a constant ratio, so that a logarithmic axis shows them evenly."""
    if len(values) < 3 or values[0] <= 0 or values[-1] < 3 * values[0]:
        return False
    return bool(np.ptp(np.diff(np.log(values))) < 1e-6)


def _edges(values: np.ndarray) -> np.ndarray:
    """Return the borders of the cells around values, halfway between neighbours on their axis."""
    return np.exp(cell_borders(np.log(values))) if _geometric(values) else cell_borders(values)


def paint(dataset: xr.Dataset, axes: Axes, norm: Normalize | None = None) -> Any:
    """Paint the growth rate of a map and its boundary into axes; return the image.

    The colours are symmetric about 0. By default they reach so far that the strongest 1% of the
    cells share the last colour.
    """
    vertical, horizontal = dataset.rate.dims
    x, y = dataset[horizontal].values, dataset[vertical].values
    rate = dataset.rate.values * _RATE_STEPS
    known = np.abs(rate[np.isfinite(rate)])
    limit = (float(np.quantile(known, 0.99)) if known.size else 0.0) or 1.0
    norm = norm or Normalize(-limit, limit)
    image = axes.pcolormesh(_edges(x), _edges(y), rate, cmap=DIVERGING, norm=norm, rasterized=True)
    if known.size < rate.size:  # what lies under the cells that are left out
        axes.patch.set(facecolor=PALE, edgecolor=GREY, hatch="////", linewidth=0)
    if min(rate.shape) > 1 and (rate < 0).any() and (rate > 0).any():
        axes.contour(x, y, rate, levels=[0.0], colors=INK, linewidths=1.2)
    _scale_axes(axes, x, y)
    return image


def _scale_axes(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    for values, scale, axis in (
        (x, axes.set_xscale, axes.xaxis),
        (y, axes.set_yscale, axes.yaxis),
    ):
        if _geometric(values):
            scale("log")
            log_axis(axis)


def draw_order_proof(dataset: xr.Dataset, axes: Axes) -> Line2D | None:
    """Draw the largest momentum or step size that every order allows; None where it is not seen."""
    if "order_proof" not in dataset:
        return None
    proof = dataset.order_proof
    (along,), height = proof.dims, str(proof.attrs["of"])
    places, line = dataset[along].values, proof.values
    edges = _edges(dataset[height].values)
    if not np.any((line > edges[0]) & (line < edges[-1])):
        return None
    upright = height == str(dataset.rate.dims[0])
    limits = axes.axis()
    (drawn,) = axes.plot(
        *((places, line) if upright else (line, places)),
        color=INK,
        linewidth=1.2,
        linestyle="--",
        label="safe in every order",
    )
    axes.axis(limits)
    return drawn


def add_scale(figure: Figure, image: Any, axes: Any, ticks: list[float] | None = None) -> None:
    """Add the colour scale of a map."""
    bar = figure.colorbar(
        image, ax=axes, extend="both", extendfrac=0.03, pad=0.02, aspect=30, ticks=ticks
    )
    bar.ax.minorticks_off()
    bar.ax.yaxis.set_major_formatter("{x:g}")
    bar.set_label(f"growth rate per {_RATE_STEPS} steps:  ← converges    diverges →")
    bar.outline.set_linewidth(0.5)


def _plot_levels(dataset: xr.Dataset) -> Figure:
    """Return a figure of the distances at which training is predicted to settle."""
    vertical, horizontal = (str(name) for name in dataset.distance.dims)
    x, y, distance = dataset[horizontal].values, dataset[vertical].values, dataset.distance.values
    setting = json.loads(dataset.attrs["setting"])
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 4.6)
        axes = figure.add_subplot()
        known = distance[np.isfinite(distance)]
        norm = LogNorm(*(known.min(), known.max()) if known.size else (0.1, 1.0))
        axes.set_facecolor(PALE)
        image = axes.pcolormesh(
            _edges(x), _edges(y), distance, cmap="cividis", norm=norm, rasterized=True
        )
        _scale_axes(axes, x, y)
        axes.set_xlabel(axis_label(horizontal))
        axes.set_ylabel(axis_label(vertical))
        name = setting["optimizer"].get("make", "SGD with momentum")
        process = dataset.attrs["process"]
        axes.set_title(f"level of {name}, {process} inputs", fontsize=10)
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=30)
        bar.set_label("distance from the best weights")
        log_axis(bar.ax.yaxis)
        if known.size < distance.size:
            reason = "no level is predicted: it diverges or is undecided"
            none = Patch(fc=PALE, ec=GREY, label=reason)
            figure.legend(handles=[none], loc="outside lower right", fontsize=9)
    return figure


def plot_map(dataset: xr.Dataset) -> Figure:
    """Return a figure of a map made by `stability_map`.

    The colour is the growth rate per 1000 steps, centred at zero: blue converges, red diverges,
    and the black line is the boundary, a spectral radius of 1. Below the dashed one, where it is
    known, no order of the inputs whatever diverges. Cells that could not be computed are hatched.
    A map of levels shows the distance from the best weights, on a logarithmic scale.
    """
    if "distance" in dataset:
        return _plot_levels(dataset)
    vertical, horizontal = (str(name) for name in dataset.rate.dims)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 4.6)
        axes = figure.add_subplot()
        image = paint(dataset, axes)
        axes.set_xlabel(axis_label(horizontal))
        axes.set_ylabel(axis_label(vertical))
        axes.set_title(_title(dataset), fontsize=10)
        add_scale(figure, image, axes)
        handles: list[Any] = [draw_order_proof(dataset, axes)]
        if reasons := _reasons(dataset):
            handles.append(Patch(fc=PALE, ec=GREY, hatch="////", label=f"not computed: {reasons}"))
        if any(isinstance(item, ContourSet) for item in axes.collections):
            label = "rate 0" if dataset.attrs["criterion"] == "lyapunov" else "ρ = 1"
            handles.append(Line2D([], [], color=INK, linewidth=1.2, label=label))
        handles = [handle for handle in handles if handle is not None]
        if handles:
            figure.legend(handles=handles, loc="outside lower right", fontsize=9, ncols=2)
    return figure
