"""Panels of a stored dataset, for a page: heat maps and lines that can be read point by point."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from resonax.core.labels import LABELS, axis_label
from resonax.explore.errors import RequestError
from resonax.sweeps.panels import select_panel

__all__ = ["find_panels", "panel_cell", "panel_table"]

_MIN_MAP_ROWS = 12  # values of the first axis from which a panel is a map, as in the figures
_MAX_LINES = 16  # lines of a panel, at most
_MAX_PANELS = 60  # panels
_RESPONSE = "log_response"
_LABELS = {"log_response": "log10 of the response", "rate": "growth rate per step"}
_CRITERIA = ("flow_rate", "map_rate", "mean_square_rate", "lyapunov_rate")


class PanelView(NamedTuple):
    """One picture of a dataset: a variable, at one place of the dimensions before the last two."""

    name: str
    variable: str
    place: tuple[tuple[str, int], ...] = ()

    def values(self, dataset: Any) -> Any:
        """Return the numbers that are drawn, the last dimension along x."""
        place = dict(self.place)
        if _RESPONSE in dataset:  # a sweep: of a panel only the cells inside its limits
            name = str(dataset.panel.values[place.pop("panel")])
            array = select_panel(dataset, name)[self.variable]
            return array / math.log(10) if self.variable == _RESPONSE else array
        return dataset[self.variable].isel(place)


def find_panels(dataset: Any) -> list[PanelView]:
    """Return the panels of a dataset: responses and rates of a sweep, else each variable."""
    if _RESPONSE in dataset:
        shown = [_RESPONSE, "rate", *(name for name in _CRITERIA if name in dataset)][:3]
        every = [(place, name) for place in range(dataset.sizes["panel"]) for name in shown]
        return [_panel(dataset, name, {"panel": place}) for place, name in every]
    found = []
    for name, array in dataset.data_vars.items():
        leading = [str(dim) for dim in array.dims[:-2]]
        if array.dtype.kind == "f" and array.ndim and len(leading) <= 1:
            found += [_panel(dataset, str(name), place) for place in _places(array, leading)]
    return found[:_MAX_PANELS]


def _panel(dataset: Any, variable: str, place: dict[str, int]) -> PanelView:
    word = _LABELS.get(variable, variable.replace("_", " "))
    names = [
        str(dataset[dim].values[at])
        if dim == "panel"
        else _place_text(dataset[variable], {dim: at})
        for dim, at in place.items()
    ]
    return PanelView(": ".join([*names, word]), variable, tuple(place.items()))


def _axis(array: Any, dim: str) -> dict[str, Any]:
    values = array[dim].values if dim in array.coords else np.arange(array.sizes[dim])
    label = axis_label(dim) if dim in LABELS else dim.replace("_", " ")
    return {"name": dim, "label": label, "values": values}


def panel_table(dataset: Any, panel: PanelView) -> dict[str, Any]:
    """Return a panel as a heat map, or as lines."""
    array = panel.values(dataset)
    *rest, x = (str(dim) for dim in array.dims)
    label = _LABELS.get(panel.variable, panel.variable.replace("_", " "))
    table: dict[str, Any] = {"name": panel.name, "title": panel.name, "label": label, "log": False}
    table["x"] = _axis(array, x)
    if len(rest) == 1 and array.sizes[rest[0]] >= _MIN_MAP_ROWS:
        return table | {"kind": "heatmap", "y": _axis(array, rest[0]), "z": array.values}
    places = _places(array, rest)
    series = [
        {"name": _place_text(array, place), "values": array.isel(place).values} for place in places
    ]
    return table | {"kind": "lines", "y": {"name": "series", "label": label}, "series": series}


def _places(array: Any, dims: list[str]) -> list[dict[str, int]]:
    """Return the places of the lines of a panel, the first ones where there are many."""
    ranges = [range(array.sizes[dim]) for dim in dims]
    every = itertools.islice(itertools.product(*ranges), _MAX_LINES)
    return [dict(zip(dims, place, strict=True)) for place in every]


def _place_text(array: Any, place: dict[str, int]) -> str:
    parts = []
    for dim, index in place.items():
        value = array[dim].values[index] if dim in array.coords else index
        number = f"{value:.6g}" if isinstance(value, np.number | float | int) else str(value)
        parts.append(f"{dim.replace('_', ' ')} {number}")
    return ", ".join(parts) or "value"


def panel_cell(dataset: Any, panel: PanelView, x: int, y: int) -> dict[str, Any]:
    """Return one point of a panel with its coordinates, and the runs behind it."""
    array = panel.values(dataset)
    *rest, last = (str(dim) for dim in array.dims)
    if len(rest) == 1:
        place = {rest[0]: y}
    else:
        places = _places(array, rest)
        place = places[y] if 0 <= y < len(places) else {"": -1}
    place[last] = x
    if any(dim not in array.sizes or not 0 <= at < array.sizes[dim] for dim, at in place.items()):
        raise RequestError("There is no such point in this panel.", 404)
    value = float(array.isel(place))
    words = _place_text(array, place)
    label = _LABELS.get(panel.variable, panel.variable.replace("_", " "))
    runs: list[float] = []
    if (name := f"run_{panel.variable}") in dataset:
        behind = panel._replace(variable=name).values(dataset)
        scale = math.log(10) if panel.variable == _RESPONSE else 1.0
        runs = (behind.isel(place).values / scale).tolist()
    said = f"At {words}: {label} {value:.4g}"
    said += f", the mean of {len(runs)} runs." if runs else "."
    coordinates = {
        dim: array[dim].values[at] if dim in array.coords else at for dim, at in place.items()
    }
    return {
        "coordinates": coordinates,
        "value": value,
        "runs": runs,
        "label": f"{label} of each run",
        "sentence": said,
    }
