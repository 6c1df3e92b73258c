"""The command ``sweep``: read, estimate, ask, run, draw."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from resonax.checks import ArgumentError, check_whole
from resonax.cli.running import figure_path, holding, progress_bars, save_figures, say_done
from resonax.cli.show import show_line
from resonax.paper.catalogue import EXPERIMENTS
from resonax.results import Place
from resonax.sweeps.devices import check_device

__all__ = ["sweep"]


def sweep(
    file: Path,
    *,
    out: Place,
    device: str | None,
    seed: int,
    double: bool,
    yes: bool,
    prepare: Callable[[], None],
) -> None:
    """Run a sweep of a person's own and draw it."""
    from resonax.sweeps.cost import check_cost
    from resonax.sweeps.specification import read_sweep

    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_device(device)
    described = read_sweep(file)
    try:
        cost = check_cost(described, double=double)
    except ArgumentError as error:
        raise ArgumentError(f"{file.name}: {error}") from None
    if described.id in EXPERIMENTS:
        raise ArgumentError(
            f"{file.name}: id {described.id} is a figure of the paper: name another"
        )
    _agree(file.name, str(cost), cost.is_large and not yes)
    with holding(out):
        show_line(f"{described.id}: {cost}", Console(stderr=True))
        prepare()
        from resonax.figures import plot_sweep
        from resonax.sweeps.run_sweep import run_sweep

        with progress_bars() as advance:
            dataset = run_sweep(
                described,
                out=out,
                seed=seed,
                device=device,
                double=double,
                progress=lambda share: advance(described.id, share),
            )
        save_figures(plot_sweep(dataset), out, described.id)
        say_done(described.id)
    rate = dataset.rate
    share = float((rate > 0).sum() / rate.count())
    console = Console()
    show_line(f"{share:.1%} of {int(rate.count())} cells grow.", console)
    numbers = out / "results" / f"{described.id}.zarr"
    show_line(f"figure: {figure_path(out, described.id)}, numbers: {numbers}", console)


def _agree(name: str, cost: str, ask: bool) -> None:
    """Ask a person whether a large sweep is meant; where nobody can answer, refuse it."""
    if not ask:
        return
    from resonax.sweeps.cost import LARGE

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ArgumentError(f"{name}: {cost}, which is more than {LARGE}: add --yes to run it")
    import typer

    if not typer.confirm(f"{name}: {cost}. Run it?", err=True):
        raise ArgumentError(f"{name}: not run")
