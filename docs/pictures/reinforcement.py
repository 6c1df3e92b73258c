"""Draw the return of deep Q-learning over the period of its target network, by beta1.

The numbers are those of ``benchmarks/reinforcement.py sweep``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from resonax.figures.style import BLUE, GREY, RED, STYLE, new_figure

HERE = Path(__file__).parent
COLORS = {0.5: GREY, 0.9: BLUE, 0.95: RED}
SHOWN = 500  # period whose loss is drawn over its phase


def of(runs: list[dict[str, Any]], name: str, **wanted: Any) -> np.ndarray:
    """Return a number of all runs of a setting."""
    return np.array([run[name] for run in runs if wanted.items() <= run.items()], float)


def draw_returns(axes: Axes, runs: list[dict[str, Any]], task: str) -> None:
    """Draw mean and standard error of greedy returns over the period."""
    periods = sorted({run["period"] for run in runs})
    for place, (beta1, color) in enumerate(COLORS.items()):
        found = np.array(
            [of(runs, "greedy", task=task, beta1=beta1, period=one) for one in periods]
        )
        error = found.std(1, ddof=1) / np.sqrt(found.shape[1])
        x = np.array(periods) * 1.04 ** (place - 1)
        axes.errorbar(x, found.mean(1), error, color=color, lw=1.6, label=f"beta1 {beta1}")
    axes.set_xscale("log")
    axes.set_xticks(periods, [f"{one / 1000:g}k" if one >= 1000 else one for one in periods])
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("updates between targets")
    axes.set_title(task)


def draw_phases(axes: Axes, runs: list[dict[str, Any]], task: str) -> None:
    """Draw the loss over the phase of the period, mean of the seeds."""
    for beta1, color in COLORS.items():
        found = of(runs, "phases", task=task, beta1=beta1, period=SHOWN).mean(0)
        phases = (np.arange(len(found)) + 0.5) / len(found) * SHOWN
        axes.plot(phases, found, color=color, lw=1.6, marker="o", ms=3)
    axes.set_xlabel("updates since the last target")
    axes.set_ylabel("Huber loss of a batch")
    axes.set_ylim(0)
    axes.set_title(f"{task}, every {SHOWN}")


def main() -> None:
    """Write the picture."""
    runs = json.loads((HERE / "reinforcement.json").read_text())["sweep"]
    with rc_context(STYLE):
        figure = new_figure(9.0, 3.2)
        left, middle, right = figure.subplots(1, 3)
        draw_returns(left, runs, "CartPole-v1")
        draw_returns(middle, runs, "Acrobot-v1")
        left.set_ylabel("greedy return")
        draw_phases(right, runs, "CartPole-v1")
        left.legend(fontsize=8)
        figure.savefig(HERE / "reinforcement.png", dpi=150)


if __name__ == "__main__":
    main()
