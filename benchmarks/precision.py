"""Verdicts of two runs of the same maps, say 32 bits on a GPU and 64 bits on a CPU.

Run: python benchmarks/precision.py FOLDER OTHER_FOLDER [ID ...]

Both folders are made by ``resonax reproduce`` with the same seed. A cell is away from the boundary
when the growth rates of its eight neighbours have its sign in both runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import maximum_filter, minimum_filter

import resonax as rx


def main() -> None:
    first, second = (Path(word) / "results" for word in sys.argv[1:3])
    for name in sys.argv[3:] or ["sinusoid-map", "ar2-map", "smaller-step"]:
        one, two = (rx.open_store(folder / f"{name}.zarr") for folder in (first, second))
        for panel in one.panel.values:
            grows = [data.rate.sel(panel=panel).values > 0 for data in (one, two)]
            near = [maximum_filter(sign, 3) != minimum_filter(sign, 3) for sign in grows]
            away = ~(near[0] | near[1])
            differ = grows[0] != grows[1]
            print(
                f"{name}, {panel}: {int(differ.sum())} of {differ.size} verdicts differ, "
                f"{int((differ & away).sum())} of {int(away.sum())} away from the boundary; "
                f"largest difference of a rate "
                f"{float(np.abs((one.rate - two.rate).sel(panel=panel)).max()):.2g}"
            )


if __name__ == "__main__":
    main()
