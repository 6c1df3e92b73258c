"""The command ``resonax order``: an order of the rows in which an error grows much, or little."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.console import Console

from resonax.cli.options import (
    Data,
    Learner,
    Plot,
    Reading,
    Seed,
    given,
    option,
    single,
    with_groups,
)
from resonax.cli.parsers import number, option_name
from resonax.cli.show import check_path, progress, show_line
from resonax.core.errors import ArgumentError
from resonax.spec.settings import check_basis, check_optimizer

__all__ = ["order_command"]

_RESULT = "Result"


@with_groups
def order_command(
    reading: Reading,
    learner: Learner,
    data: Data = None,
    worst: Annotated[
        bool,
        option("--worst/--safest", _RESULT, "Search an order that grows much, or a safe one."),
    ] = True,
    repeats: Annotated[
        bool, option("--repeats", _RESULT, "Whether a row may come again in the worst order.")
    ] = False,
    intercept_lr: Annotated[
        float | None,
        option(
            "--intercept-lr",
            "Learner",
            "Step size of a bias without momentum; 0.01 for river if left out.",
            number,
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        option("--out", _RESULT, "Write the order: a .csv file of row numbers.", metavar="FILE"),
    ] = None,
    plot: Plot = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Search the order of the rows in which an error grows most, and bound all others.

    The model is linear in its weights, with one row in each step. What is found is the best of a
    search, and need not be the best of all orders; the bound holds for all of them.

    resonax order data.csv --lr 0.01 --momentum 0.9 --repeats --out order.csv
    """
    if data is None:
        raise ArgumentError("name a data file: resonax order data.csv --lr 0.01 --momentum 0.9")
    single(learner)
    chosen = check_optimizer(given(learner), "check", option_name)
    if learner.batch != 1:
        raise ArgumentError("batch must be 1: an order is one of single rows")
    basis = check_basis(given(learner), option_name)
    check_path("--out", out, ".csv")
    check_path("--plot", plot, ".png", ".svg", ".pdf")
    from resonax.recordings.recording import read_recording

    recording = read_recording(data, **asdict(reading))
    from resonax.checking.order import order
    from resonax.dynamics.build import build_basis

    found = order(
        recording,
        kind="worst" if worst else "safest",
        repeats=repeats,
        optimizer=learner.optimizer,
        intercept_lr=intercept_lr,
        basis=partial(build_basis, basis),
        seed=seed,
        stage=lambda name, steps: progress(name, steps, "rows"),
        **{"momentum": 0.0, **chosen.given},  # pyrefly: ignore[bad-argument-type]
    )
    if out is not None:
        from resonax.store import replacing

        with replacing(out) as temporary:
            lines = (f"{step},{row}" for step, row in enumerate(found.rows.tolist()))
            temporary.write_text("step,row\n" + "\n".join(lines) + "\n", encoding="utf-8")
    if plot is not None:
        from resonax.figures import save_figure

        save_figure(found.plot(), plot)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
    console = Console()
    for line in str(found).splitlines():
        show_line(f"{line}.", console)
    for name, rate in found.compared.items():
        show_line(f"{name}: {rate:+.3g} per step.", console)
    show_line(
        "All these rates are of an order repeated pass after pass, once the start is forgotten; "
        "`resonax check` gives that of the passes asked for, one if left out.",
        console,
    )
    if written := [str(path) for path in (out, plot) if path is not None]:
        show_line(f"written: {', '.join(written)}", console)
