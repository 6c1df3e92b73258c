"""The sweeps of the paper: each is a specification that is read beside the paper's table."""

from __future__ import annotations

from importlib.resources import as_file, files

from resonax.sweeps.experiment import Experiment, Judge, from_sweep
from resonax.sweeps.specification import read_sweep

__all__ = ["paper_sweep"]


def paper_sweep(name: str, scale: str, *judges: Judge) -> Experiment:
    """Return the experiment of one of the files in ``specifications``, with its judges."""
    source = files("resonax.paper") / "specifications" / f"{name}.toml"
    with as_file(source) as path:
        return from_sweep(read_sweep(path, scale=scale), judges)
