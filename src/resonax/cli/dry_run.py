"""What a command would take; nothing is computed or written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from resonax.cli.show import show_line

if TYPE_CHECKING:
    from resonax.sweeps.experiment import Experiment

__all__ = ["show_cost"]


def show_cost(experiments: Sequence[Experiment], workers: int, *, double: bool) -> None:
    """Print tasks, memory, size of the results and an estimate of the time."""
    from resonax.sweeps.cost import LIBRARIES, describe_time, estimate_cost

    console, is_one = Console(), len(experiments) == 1
    counts = [one.layout.count() for one in experiments]
    seconds = [count * one.seconds for one, count in zip(experiments, counts, strict=True)]
    if not is_one:
        for one, count, time in zip(experiments, counts, seconds, strict=True):
            words = f"{count} task{'s' if count > 1 else ''}"
            show_line(f"{one.id}: {words}, {describe_time(time)}", console)
    memory = max(
        estimate_cost(one.sweep, double=double, streams=is_one).bytes
        if one.sweep
        else LIBRARIES + 2 * one.layout.nbytes
        for one in experiments
    )
    longest = max(one.seconds for one in experiments)
    several = max(sum(seconds) / workers, longest)
    stored = sum(one.layout.nbytes for one in experiments)
    for line in (
        f"tasks: {sum(counts):,}, the longest {describe_time(longest)}",
        f"memory: at most {memory / 1e9:.2g} GB for each worker; results: {stored / 1e6:.2g} MB",
        f"time: about {describe_time(sum(seconds))} for one worker"
        + (f", {describe_time(several)} for {workers}" if workers > 1 else "")
        + ", to a factor of about 3",
        "nothing was written",
    ):
        show_line(line, console)
