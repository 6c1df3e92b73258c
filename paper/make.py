"""Build the paper: ``python paper/make.py [FOLDER]`` writes its text and its figures.

``paper.md`` is a template. Every number in it is computed here: from networks that were measured
(``docs/pictures/network_bands.json``), from what ``measure.py`` stored (``runs.json``), and from
computations of a few seconds.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from matplotlib import rc_context
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "pictures"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import every_order
import networks
from adam_divergence import EXAMPLE, predict, simulate
from measure import LR as ADAM_LR
from measure import RUNS, STREAM, temperatures, training_by_adam
from network_bands import compare, judge, judge_stability

import resonax as rx
from resonax.figures.style import BLUE, GREY, RED, STYLE, new_figure

HERE = Path(__file__).parent
HOLD, BETA1, LR = 30, 0.9, 0.001  # of Adam on rows that are held
MEMORIES = np.geomspace(0.03, 10, 16)  # 1 / (1 - beta2), in periods
SHOWN = {0.9: GREY, 0.95: BLUE, 0.98: RED}  # beta1 of the figure of levels
EXAMPLE_CELL = {"beta1": 0.95, "period": 20.0}  # whose level the text gives
TOLERANCE = 0.3  # how far off a predicted level may be, relative to the simulated one


def stored_runs() -> dict[str, Any]:
    """Return what ``measure.py`` stored."""
    return json.loads(RUNS.read_text())


def number_orders() -> dict[str, Any]:
    """Return the numbers of the bound for every order."""
    example = {"lr": 0.01, "momentum": 0.95}
    gaps = []
    for make, lookahead in ((rx.heavy_ball, False), (rx.nesterov, True)):
        for momentum in every_order.MARKS:
            bound = rx.order_proof(make(0.1, float(momentum)), curvature=1.0).lr
            assert bound is not None
            gaps.append(every_order.least(float(momentum), lookahead) / bound - 1)
    found = stored_runs()["order"]
    hourly = temperatures()[:-1]
    rows = (hourly - hourly.mean()) / hourly.std()
    safe = rx.order_proof(rows[:, None], lr=found["lr"], momentum=found["momentum"])
    return {
        "example": example,
        "proof": rx.order_proof(rx.heavy_ball(**example), curvature=4.0),
        "settings": len(gaps),
        "gap": max(gaps),
        "shortfall": min(gaps),
        "safe": safe.momentum,
        "speeds": len(every_order.PERIODS),
        **{name.replace(" ", "_"): number for name, number in found.items()},
    }


def number_levels() -> dict[str, Any]:
    """Return the numbers of the level of Adam."""
    found = rx.level(rx.Problem.of(training_by_adam(**EXAMPLE_CELL)))
    stored = stored_runs()["level"]
    ratio = np.array(stored["predicted"]) / np.array(stored["simulated"])
    off = np.maximum(ratio, 1 / ratio)
    place = np.unravel_index(np.argmax(off), off.shape)
    return {
        "found": found,
        "stream": {**STREAM, **EXAMPLE_CELL, "lr": ADAM_LR},
        "cells": ratio.size,
        "tolerance": TOLERANCE,
        "close": int(np.sum(np.abs(ratio - 1) <= TOLERANCE)),
        "median": float(np.median(ratio)),
        "worst": float(ratio[place]),
        "worst_beta1": stored["beta1"][place[0]],
        "worst_period": stored["period"][place[1]],
        "runs": stored["runs"],
        "steps": stored["steps"],
    }


def held_growth(memory: float, far: float = 20.0) -> tuple[float, float]:
    """Return the growth of an error per step over the step size: predicted, 0 if none; simulated.

    The rows of the example are held, and v remembers `memory` periods. Runs begin in the direction
    that theory names and in three random ones.
    """
    beta2 = 1 - 1 / (memory * HOLD * len(EXAMPLE))
    found = predict(EXAMPLE, HOLD, BETA1, beta2)
    towards = np.random.default_rng(1).normal(size=(4, 1, 3))
    if found is not None:
        towards[0, 0] = found.direction
    _, growth = simulate(EXAMPLE[None], towards, HOLD, BETA1, beta2, far)
    return 0.0 if found is None else found.growth, float(growth[0])


@cache
def held_curve() -> np.ndarray:
    """Return the growth over the memories, (memory, 2): predicted and simulated."""
    return np.array([held_growth(float(memory)) for memory in MEMORIES])


def number_held_rows() -> dict[str, Any]:
    """Return the numbers of Adam on rows that are held."""
    period = HOLD * len(EXAMPLE)
    predicted, simulated = held_growth(10 / period, far=5 / LR / period)
    signs = [np.eye(3) - np.outer(np.sign(x), x) / np.abs(x).sum() for x in EXAMPLE]
    steepest = [np.eye(3) - np.outer(x, x) / (x @ x) for x in EXAMPLE]
    by_sign, by_gradient = (
        float(np.abs(np.linalg.eigvals(one[2] @ one[1] @ one[0])).max())
        for one in (signs, steepest)
    )
    grows = held_curve()[:, 0] > 0
    return {
        "rows": EXAMPLE.astype(int).tolist(),
        "hold": HOLD,
        "lr": LR,
        "beta1": BETA1,
        "period": period,
        "beta2": 1 - 1 / 10,
        "predicted": LR * predicted,
        "simulated": LR * simulated,
        "by_sign": by_sign,
        "by_gradient": by_gradient,
        "last": float(MEMORIES[grows].max()),
        "first": float(MEMORIES[~grows].min()),
        **stored_runs()["sets"],
    }


def number_bands() -> dict[str, Any]:
    """Return the numbers of networks whose domains alternate."""
    parts = json.loads((networks.HERE / "network_bands.json").read_text())
    rows = [row for part in parts for row in compare(part)]
    cases = [row for row in rows if (row["state"], row["attempt"]) == ("initial", "averaged")]
    mixed = [one for one in judge(rows) if one["state"] == "initial"]  # by falling step size
    judged = {
        attempt: [one for one in mixed if one["attempt"] == attempt]
        for attempt in ("unstable", "averaged", "frozen")
    }
    part = next(one for one in networks.read() if one["name"] == "transformer-text")
    loss = np.array(part["loss"]).mean(-1)
    beta1 = 0.95
    excess = (loss[:, 1:] - loss[:, :1])[part["beta1"].index(beta1)]
    return {
        "networks": len({one["name"] for one in parts}),
        "parameters": [one["parameters"] for one in parts],
        "cases": len(cases),
        "peaks": sum(row["hump"] for row in cases),
        "judged": judged,
        "close": {name: sum(one["close"] for one in some) for name, some in judged.items()},
        "stability": judge_stability(parts),
        "lr": sorted({one["lr"] for one in parts}),
        "beta1": part["beta1"],
        "periods": len(part["period"]) - 1,
        "shown_beta1": beta1,
        "shown_parameters": part["parameters"],
        "worst": float(excess.max()),
        "worst_period": part["period"][1:][int(excess.argmax())],
    }


NUMBERS: dict[str, Callable[[], dict[str, Any]]] = {
    "orders": number_orders,
    "levels": number_levels,
    "held": number_held_rows,
    "bands": number_bands,
}


def draw_adam() -> Figure:
    """Return the levels of Adam over the period, and the growth on held rows over the memory."""
    figure = new_figure(9.2, 3.4)
    left, right = figure.subplots(1, 2)
    stored = stored_runs()["level"]
    for beta1, colour in SHOWN.items():
        row = stored["beta1"].index(beta1)
        left.plot(stored["period"], stored["predicted"][row], color=colour, lw=1.2)
        left.errorbar(
            stored["period"],
            stored["simulated"][row],
            stored["error"][row],
            color=colour,
            fmt="o",
            ms=3.5,
            label=f"beta1 {beta1}",
        )
    left.set(xlabel="steps between two switches", ylabel="distance from the best weights")
    left.set(xscale="log", ylim=(0, None))
    left.xaxis.set_major_formatter("{x:g}")
    left.legend(frameon=False, fontsize=8)
    predicted, simulated = held_curve().T
    right.plot(MEMORIES, predicted, color=BLUE, lw=1.2, label="theory")
    right.plot(MEMORIES, simulated, "o", color=RED, ms=3.5, label="simulated")
    right.set(xlabel="memory of v (periods of the rows)", ylabel="growth per step / step size")
    right.set(xscale="log")
    right.xaxis.set_major_formatter("{x:g}")
    right.legend(frameon=False, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "every-order.png": every_order.draw,
    "adam.png": draw_adam,
    "transformer.png": lambda: networks.draw_transformer(networks.read()),
}


def write_text(numbers: dict[str, dict[str, Any]]) -> str:
    """Return the text with its numbers; one that is missing is an error."""
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    figure = {Path(name).stem: number for number, name in enumerate(FIGURES, 1)}
    template = environment.from_string((HERE / "paper.md").read_text("utf-8"))
    return template.render(numbers, figure=figure)


def main() -> None:
    """Write the paper into a folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "build"
    folder.mkdir(parents=True, exist_ok=True)
    text = write_text({name: compute() for name, compute in NUMBERS.items()})
    (folder / "paper.md").write_text(text, "utf-8")
    shutil.copy(HERE / "paper.bib", folder)
    with rc_context(STYLE):
        for name, draw in FIGURES.items():
            draw().savefig(folder / name, dpi=200)
    print(f"{folder / 'paper.md'}: {len(text.split())} words, {len(FIGURES)} figures")


if __name__ == "__main__":
    main()
