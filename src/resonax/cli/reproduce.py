"""The command ``reproduce``: run, draw, judge, report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from resonax.cli.claims import show_claims
from resonax.cli.dry_run import show_cost
from resonax.cli.running import draw, figure_path, holding, progress_bars, say_done
from resonax.cli.show import show_line
from resonax.cli.work import Work, check_work, started
from resonax.core.errors import ArgumentError, check_whole
from resonax.paper.catalogue import EXPERIMENTS, IN_PARTS, catalogue, check_names, judge
from resonax.run.executors import count_workers, is_elsewhere
from resonax.store import Location
from resonax.sweeps.devices import check_device, describe_device

if TYPE_CHECKING:
    import xarray as xr

    from resonax.sweeps.experiment import Experiment, Judge
    from resonax.sweeps.judgement import Claim
    from resonax.sweeps.runner import Outcome

__all__ = ["reproduce"]


def reproduce(
    ids: tuple[str, ...],
    *,
    scale: str,
    out: Location,
    device: str | None,
    seed: int,
    double: bool,
    networks: bool,
    as_json: bool,
    dry_run: bool,
    work: Work,
    prepare: Callable[[], None],
) -> None:
    """Make figures, claims and report of the paper."""
    began = time.perf_counter()
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_names(ids, scale)
    check_device(device)
    check_work(work)
    wanted = set(ids or EXPERIMENTS)
    count = len(wanted)
    usual = count_workers(None if wanted & IN_PARTS else count)
    if dry_run:
        show_cost(_chosen(ids, scale, networks), work.count(usual), double=double)
        return
    executor = started(work, usual=usual, device=device, prepare=prepare)
    with holding(out, is_shared=work.part is not None):
        words = f"{count} of the paper's {len(EXPERIMENTS)} figures, {scale} scale, into {out}"
        print(f"{words}; what is stored is kept", file=sys.stderr, flush=True)
        with executor as executor:
            from resonax.sweeps.runner import run_experiments

            experiments = _chosen(ids, scale, networks)
            data: dict[str, xr.Dataset] = {}
            judged: dict[Judge, Claim] = {}

            def read(name: str, dataset: xr.Dataset) -> None:  # judge what can be judged by now
                data[name] = dataset
                judge(experiments, data, judged)

            _, name = describe_device(device, is_elsewhere=is_elsewhere(executor))
            with progress_bars() as progress:
                outcomes = run_experiments(
                    experiments,
                    out,
                    seed=seed,
                    device=device,
                    double=double,
                    executor=executor,
                    shard=work.part,
                    progress=progress,
                    finish=draw,
                    done=say_done,
                    read=read if _is_judged(experiments) else None,
                )
            if len(outcomes) < len(experiments):
                words = f"part {work.shard} is done; resonax status {out} says what is left"
                show_line(words, Console())
                return
            command = " ".join(["resonax reproduce", *ids, f"--scale {scale} --seed {seed}"])
            if not networks:
                command += " --no-networks"
            claims = judge(experiments, data, judged)
            _finish(outcomes, claims, out, scale, seed, name, command, began, as_json)


def _chosen(ids: tuple[str, ...], scale: str, networks: bool) -> list[Experiment]:
    """Return what is to be made."""
    found = [item for item in catalogue(ids, scale) if networks or not item.networks]
    if not found:
        raise ArgumentError("nothing is left to make: leave out --no-networks")
    return found


def _is_judged(experiments: Sequence[Experiment]) -> bool:
    """Return whether any claim can be judged from what is made; if not, nothing need be read."""
    made = {item.id for item in experiments}
    return any(made.issuperset(one.also) for item in experiments for one in item.judges)


def _finish(
    outcomes: list[Outcome],
    claims: list[Claim],
    out: Location,
    scale: str,
    seed: int,
    device: str,
    command: str,
    began: float,
    as_json: bool,
) -> None:
    """Write the claims and the report, and say where everything is."""
    from resonax.core.labels import versions
    from resonax.reports.claims import plain_claims, write_claims
    from resonax.reports.reproduction import Report, Section, write_report

    page = write_report(
        Report(
            sections=tuple(
                Section(
                    outcome.experiment,
                    figure_path(out, outcome.experiment.id),
                    figure_path(out, outcome.experiment.id, dark=True),
                    outcome.seconds,
                )
                for outcome in outcomes
            ),
            claims=tuple(claims),
            scale=scale,
            seed=seed,
            device=device,
            versions=versions(),
            seconds=time.perf_counter() - began,
            command=command,
        ),
        out,
    )
    judged = plain_claims(claims, scale=scale, seed=seed)
    stored = write_claims(judged, out)
    if as_json:
        print(json.dumps(judged, indent=2, ensure_ascii=False, allow_nan=False))
        return
    console = Console()
    if claims:
        show_claims(claims, console)
    else:
        show_line("no claim can be judged from these figures alone: name more of them", console)
    show_line(f"report: {page}", console)
    show_line(f"figures: {out / 'figures'}, numbers: {out / 'results'}, claims: {stored}", console)
    if scale == "smoke":
        show_line("this was the small scale; --scale paper makes the paper's own size", console)
