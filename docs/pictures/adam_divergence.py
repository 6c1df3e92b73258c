"""Draw how rows that are held drive Adam away, and where they do."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context

import resonax as rx
from resonax.figures.style import STYLE, new_figure
from resonax.theory.far_field import find_escape

ROWS = np.array([[3.0, -1, -1], [-1, 3, -1], [-1, -1, 3]])
HOLD, LR, STEPS = 30, 1e-3, 18_000


def train(beta2: float | None) -> np.ndarray:
    """Return the error after each step of Adam; without beta2, of SGD with momentum 0.9."""
    error = np.full(3, -0.1)
    mean, square, lengths = np.zeros(3), np.zeros(3), np.zeros(STEPS)
    for step in range(STEPS):
        row = ROWS[step // HOLD % 3]
        gradient = 2 * (row @ error) * row
        if beta2 is None:
            mean = 0.9 * mean + gradient
            error = error - LR * mean
        else:
            mean = 0.9 * mean + 0.1 * gradient
            square = beta2 * square + (1 - beta2) * gradient**2
            corrected = np.sqrt(square / (1 - beta2 ** (step + 1))) + 1e-8
            error = error - LR * mean / (1 - 0.9 ** (step + 1)) / corrected
        lengths[step] = np.linalg.norm(error)
    return lengths


def growth(hold: int, memory: float) -> float:
    """Return the growth of a large error per step, in units of the step size; 0 if none."""
    law = rx.Recorded.of(np.repeat(ROWS, hold, axis=0), repeat=True)
    problem = rx.Problem(law, rx.adam(1.0, 0.9, 1 - 1 / memory), rx.Linear(bias=False))
    found = find_escape(problem)
    return found.growth if found else 0.0


def main() -> None:
    """Write the picture."""
    holds = np.unique(np.geomspace(3, 300, 22).round().astype(int))
    memories = np.geomspace(2, 2000, 40)
    rates = np.array([[growth(int(hold), memory) for hold in holds] for memory in memories])
    with rc_context(STYLE):
        figure = new_figure(9.2, 3.6)
        left, right = figure.subplots(1, 2)
        for colour, label, beta2 in (
            ("C3", "Adam, beta2 0.9", 0.9),
            ("C1", "Adam, beta2 0.98", 0.98),
            ("C0", "Adam, beta2 0.999", 0.999),
            ("0.4", "SGD, momentum 0.9", None),
        ):
            left.plot(np.arange(STEPS) / 1000, train(beta2), color=colour, lw=1.2, label=label)
        left.set(xlabel="thousand steps", ylabel="distance from the best weights", yscale="log")
        left.set_ylim(1e-9, 1e5)
        left.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
        drawn = np.ma.masked_equal(rates, 0.0)
        mesh = right.pcolormesh(holds, memories, drawn, cmap="Reds", vmin=0, shading="nearest")
        figure.colorbar(mesh, ax=right, label="growth per step / step size")
        right.plot(holds, 9 * holds, color="C0", ls="--", label="3 periods")
        right.plot(holds, 3 * holds, color="0.4", ls=":", label="1 period")
        right.plot([HOLD] * 3, [10, 50, 1000], "ko", ms=4, label="on the left")
        right.set(xscale="log", yscale="log", xlabel="steps for which a row is held")
        right.set(ylabel="memory 1 / (1 - beta2) (steps)", xlim=(3, 300), ylim=(2, 2000))
        right.legend(frameon=False, fontsize=8, loc="upper left")
        figure.savefig(Path(__file__).with_name("adam-divergence.png"), dpi=150)


if __name__ == "__main__":
    main()
