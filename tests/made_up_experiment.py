"""A small experiment, whose functions a worker imports without the tests and all that they load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from resonax.store import Layout, Variable
from resonax.sweeps.experiment import Experiment, Judge
from resonax.sweeps.judgement import Case, Claim

if TYPE_CHECKING:
    import xarray as xr


def compute(region, seed, double, advance):
    advance(0.5)
    numbers = np.arange(6.0)[region["place"]]
    return {"height": np.sin(numbers + seed)}


def draw(dataset: xr.Dataset):
    from resonax.figures.style import new_figure

    figure = new_figure(4, 3)
    figure.add_subplot().plot(dataset.place, dataset.height)
    return figure


def judge_height(data) -> Claim:
    largest = float(data["made-up"].height.max())
    case = Case("largest height", largest, "<=", 1.0)
    return Claim("never-above-one", "No height is above 1.", "heights", "A sine.", (case,), 0.0)


def made_up(scale: str) -> Experiment:
    return Experiment(
        id="made-up",
        title="A sine",
        caption=f"Drawn at the {scale} scale.",
        specification={"id": "made-up"},
        layout=Layout(
            {"place": np.arange(6)}, {"place": 1}, {"height": Variable(("place",), "float64")}
        ),
        compute=compute,
        draw=draw,
        judges=(Judge(judge_height),),
        attributes={"unit": "m"},
        paper="none",
    )
