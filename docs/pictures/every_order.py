"""Draw the bound for every order, and where the error of a row that turns slowly grows."""

from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.optimize import brentq

import resonax as rx
from resonax.figures.style import STYLE, new_figure

PERIODS = np.unique(np.geomspace(3, 4000, 160).round())  # half turns of the row, in steps
MARKS = np.linspace(0.1, 0.95, 18)  # momenta at which the row turns


def radius(step: float, momentum: float, lookahead: bool) -> float:
    """Return the largest growth over the periods; a step is lr times the curvature of the row.

    In the frame that turns with the row the update is one constant matrix.
    """
    row, one = np.diag([step, 0.0]), np.eye(2)
    update = np.block([[one - row, momentum * one], [-row, momentum * one]])
    if lookahead:
        gain = 1 + momentum
        update = np.block([[one - gain * row, momentum**2 * one], [-row, momentum * one]])
    angle = np.pi / PERIODS
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    frame = np.kron(one, turn.transpose(2, 0, 1))
    return float(np.abs(np.linalg.eigvals(frame @ update)).max())


def least(momentum: float, lookahead: bool) -> float:
    """Return the least step at which the row lets an error grow."""

    def growth(step: float) -> float:
        return radius(step, momentum, lookahead) - 1 - 1e-9

    return float(brentq(growth, 1e-5, 8.0))


def draw() -> Figure:
    """Return the picture."""
    momenta = np.linspace(0, 0.98, 99)
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    for colour, make in (("C0", rx.heavy_ball), ("C1", rx.nesterov)):
        bound = [rx.order_proof(make(0.1, float(mu)), curvature=1.0).lr or np.nan for mu in momenta]
        label = make.__name__.replace("_", " ")
        axes.plot(momenta, bound, color=colour, label=f"{label}: no order grows below")
        ahead = make is rx.nesterov
        grown = [least(float(momentum), ahead) for momentum in MARKS]
        axes.plot(MARKS, grown, "o", ms=4, color=colour, label=f"{label}: a turning row grows")
    axes.set(xlabel="momentum", ylabel="step size times curvature", yscale="log")
    axes.set_ylim(1e-4, 6)
    axes.grid(color="0.9", lw=0.7)
    axes.legend(frameon=False)
    return figure


if __name__ == "__main__":
    with rc_context(STYLE):
        draw().savefig(Path(__file__).with_name("every-order.png"), dpi=150)
