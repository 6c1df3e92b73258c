"""Maps in the hands of an xarray user: ``dataset.resonax.plot()``.

A map stays a plain `xarray.Dataset`, with all that xarray can do to it. What resonax adds has the
place that xarray has for it, an accessor; it is there once a map was made or loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import xarray as xr

from resonax.core.objects import Result, call_by_name, plain_values

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["StabilityMap"]


@xr.register_dataset_accessor("resonax")
class StabilityMap(Result):
    """What a map holds in a few words, its picture, its file, its plain values.

    Examples
    --------
    >>> import resonax as rx
    >>> setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr=0.01, momentum=0.97))
    >>> found = rx.stability_map(setting, momentum=[0.9, 0.99], period=[22.0, 30.0])
    >>> found.resonax
    StabilityMap(
        criterion='map', process='sinusoid', axes='2 momentum x 2 period', diverging=0.25
    )
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def summary(self) -> dict[str, Any]:
        """Return criterion, process, axes, what diverges or the largest level; what is missing."""
        attributes, is_level = self._dataset.attrs, "distance" in self._dataset
        shown = self._dataset.distance if is_level else self._dataset.rate
        missing = int(shown.isnull().sum())
        diverging = float((shown > 0).sum() / max(shown.size - missing, 1))
        return {
            "criterion": attributes["criterion"],
            "process": attributes["process"],
            "axes": " x ".join(f"{size} {name}" for name, size in shown.sizes.items()),
            **({"largest": float(shown.max())} if is_level else {"diverging": diverging}),
            **({"missing": missing} if missing else {}),
        }

    def reasons(self) -> dict[str, int]:
        """Return why cells could not be computed, each reason with the number of its cells."""
        flags = self._dataset.missing
        names = flags.attrs["flag_meanings"].split()
        counts = {name: int((flags == flag).sum()) for flag, name in enumerate(names)}
        return {flags.attrs[name]: counts[name] for name in names[1:] if counts[name]}

    def plot(self) -> Figure:
        """Return the picture of the map, as `plot_map` draws it."""
        return call_by_name("resonax.figures.map:plot_map", self._dataset)

    def save(self, path: str | Path) -> Path:
        """Write the map to a ``.nc`` file, whole or not at all; `resonax.load` reads it again."""
        call_by_name("resonax.store.saved:save_dataset", self._dataset, path)
        return Path(path)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON: coordinates, rates and attributes."""
        return plain_values(self._dataset)
