"""The sweeps of the paper: each is a specification that is read beside the paper's table."""

from __future__ import annotations

from importlib.resources import as_file, files

from resonax.spec.sweep_checks import Sweep, read_sweep
from resonax.sweeps.experiment import Experiment, Judge, from_sweep

__all__ = ["paper_sweep", "read_paper_sweep"]


def read_paper_sweep(name: str, scale: str) -> Sweep:
    """Return the sweep of one of the files in ``specifications``."""
    source = files("resonax.paper") / "specifications" / f"{name}.toml"
    with as_file(source) as path:
        return read_sweep(path, scale=scale)


def paper_sweep(name: str, scale: str, *judges: Judge) -> Experiment:
    """Return the experiment of one of the files in ``specifications``, with its judges."""
    return from_sweep(read_paper_sweep(name, scale), judges)
