"""One record of an experiment is all that it takes; executors and interruptions leave no trace."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import resonax as rx
from made_up_experiment import compute, made_up
from resonax.cli.app import _run
from resonax.core.errors import StoreError
from resonax.figures import plot_sweep
from resonax.paper.catalogue import EXPERIMENTS, IN_PARTS, catalogue
from resonax.run.executors import local_processes
from resonax.store import Layout, Variable
from resonax.sweeps.computation import TasksFailed
from resonax.sweeps.experiment import Experiment
from resonax.sweeps.runner import run_experiments, shard_tasks
from test_experiments import changed, tree


def test_a_figure_is_added_by_its_record_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "made-up", made_up)
    assert _run(["reproduce", "made-up", "--out", "out"]) == (0, "")
    assert "1 of the paper's 15 figures" in capsys.readouterr().err
    out = tmp_path / "out"
    dataset = rx.open_store(out / "results" / "made-up.zarr")
    np.testing.assert_array_equal(dataset.height, np.sin(np.arange(6.0)))
    assert dataset.attrs["unit"] == "m"
    (claim,) = json.loads((out / "claims.json").read_text())["claims"]
    assert (claim["id"], claim["holds"]) == ("never-above-one", True)
    assert (out / "figures" / "made-up.svg").stat().st_size > 1000
    page = (out / "report.html").read_text()
    for words in ("A sine", "Drawn at the smoke scale.", "never-above-one"):
        assert words in page


@contextmanager
def dask_workers():
    """A worker of Dask in a process of its own, which finds this file."""
    import dask
    from distributed import Client, LocalCluster

    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"distributed.nanny.pre-spawn-environ.PYTHONPATH": path}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


EXECUTORS = {
    "this thread": nullcontext,
    "threads": lambda: ThreadPoolExecutor(2),
    "standard processes": lambda: ProcessPoolExecutor(1, multiprocessing.get_context("spawn")),
    "processes": lambda: local_processes(2),
    "dask": dask_workers,
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_gives_the_same_bytes_and_tells_of_its_progress(tmp_path, name):
    run_experiments([made_up("smoke")], tmp_path / "calm", seed=3)
    shares, done = [], []
    with EXECUTORS[name]() as executor:
        (outcome,) = run_experiments(
            [made_up("smoke")],
            tmp_path / name,
            seed=3,
            executor=executor,
            progress=lambda _, share: shares.append(share),
            done=done.append,
        )
    assert outcome.seconds is not None
    assert tree(tmp_path / name) == tree(tmp_path / "calm")
    assert sum(shares) == pytest.approx(1.0)
    assert done == ["made-up"]


def break_odd(region, seed, double, advance):
    if region["place"].start % 2:
        raise ZeroDivisionError(f"place {region['place'].start}\nis odd")
    return compute(region, seed, double, advance)


@pytest.mark.parametrize("name", ["this thread", "threads"])
def test_tasks_that_fail_are_listed_while_the_others_are_stored(tmp_path, name):
    failing, finished = replace(made_up("smoke"), compute=break_odd), []
    with EXECUTORS[name]() as executor, pytest.raises(TasksFailed, match="3 tasks failed") as error:
        run_experiments([failing], tmp_path, executor=executor, finish=finished.append)
    assert [str(one) for one in error.value.failures] == [
        f"made-up, task {n}: ZeroDivisionError: place {n} is odd" for n in (1, 3, 5)
    ]
    assert "break_odd" in error.value.failures[0].traceback
    assert not finished
    run_experiments([made_up("smoke")], tmp_path, finish=finished.append)
    assert len(finished) == 1


def compute_slope(region, *_):
    return {"slope": np.cos(np.arange(6.0)[region["place"]])}


def break_four(region, *rest):
    if region["place"].start == 4:
        raise ZeroDivisionError("four")
    return compute_slope(region, *rest)


def with_slope(part) -> Experiment:
    """The same with a second variable, which another function computes."""
    record = made_up("smoke")
    height = record.layout.variables["height"]
    layout = replace(record.layout, variables={"height": height, "slope": height})
    return replace(record, layout=layout, also=(part,))


def test_a_task_is_stored_when_all_of_its_variables_are_computed(tmp_path):
    shares = []
    with pytest.raises(TasksFailed) as error:
        run_experiments([with_slope(break_four)], tmp_path)
    assert [str(one) for one in error.value.failures] == [
        "made-up, task 4: ZeroDivisionError: four"
    ]
    (found,) = run_experiments(
        [with_slope(compute_slope)], tmp_path, progress=lambda _, share: shares.append(share)
    )
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(5 / 6)  # is there already
    np.testing.assert_array_equal(found.dataset.slope, np.cos(np.arange(6.0)))
    np.testing.assert_array_equal(found.dataset.height, np.sin(np.arange(6.0)))


def test_experiments_of_long_tasks_are_begun_first(tmp_path):
    begun = []

    def note(name, region, *rest):
        begun.append(name)
        return compute(region, *rest)

    records = [
        replace(made_up("smoke"), id=name, seconds=seconds, compute=partial(note, name))
        for name, seconds in (("short", 1.0), ("long", 9.0))
    ]
    assert [one.experiment.id for one in run_experiments(records, tmp_path)] == ["short", "long"]
    assert begun == ["long"] * 6 + ["short"] * 6


def test_shards_in_any_order_make_one_store_and_the_last_one_finishes_it(tmp_path):
    run_experiments([made_up("smoke")], tmp_path / "calm", seed=3)
    finished = []
    for part in (3, 1, 4, 2):
        found = run_experiments(
            [made_up("smoke")],
            tmp_path / "shards",
            seed=3,
            shard=(part, 4),
            finish=lambda _, part=part: finished.append(part),
        )
        assert len(found) == (part == 2)
    assert finished == [2]
    assert tree(tmp_path / "shards") == tree(tmp_path / "calm")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(1, 40))
def test_each_task_is_in_one_shard_and_shards_differ_by_one_task(counts, parts):
    records = [
        replace(made_up("smoke"), id=str(number), layout=layout(count))
        for number, count in enumerate(counts)
    ]
    shards = [shard_tasks(records, part, parts) for part in range(1, parts + 1)]
    for number, count in enumerate(counts):
        tasks = sorted(itertools.chain(*(shard[str(number)] for shard in shards)))
        assert tasks == list(range(count))
    sizes = [sum(map(len, shard.values())) for shard in shards]
    assert max(sizes) - min(sizes) <= 1


def layout(count: int) -> Layout:
    return Layout(
        {"place": np.arange(count)}, {"place": 1}, {"height": Variable(("place",), "float64")}
    )


def fail_at_two(region, seed, double, advance):
    if region["place"].start == 2:
        raise KeyboardInterrupt if seed == 0 else rx.ArgumentError("two is not allowed")
    return compute(region, seed, double, advance)


@pytest.mark.parametrize(("seed", "error"), [(0, KeyboardInterrupt), (1, rx.ArgumentError)])
@pytest.mark.parametrize("name", ["this thread", "threads"])
def test_what_was_finished_before_an_error_is_kept(tmp_path, name, seed, error):
    record = made_up("smoke")
    failing = replace(record, compute=fail_at_two)
    with EXECUTORS[name]() as executor, pytest.raises(error):
        run_experiments([failing], tmp_path / "out", seed=seed, executor=executor)
    markers = tmp_path / "out" / "results" / "made-up.zarr" / "tasks"
    before = {path.name: path.stat().st_mtime_ns for path in markers.glob("[0-9]*.json")}
    assert {"0.json", "1.json"} <= before.keys()
    assert "2.json" not in before
    run_experiments([record], tmp_path / "out", seed=seed)
    assert {name: (markers / name).stat().st_mtime_ns for name in before} == before
    run_experiments([record], tmp_path / "calm", seed=seed)
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


SMALL = changed(
    run={"runs": 2, "steps": 80, "window": 20},
    axes__momentum__values=[0.9, 0.95],
    axes__period={"values": [20, 30, 40]},
    chunk=2,
)


def test_run_sweep_from_a_table_a_file_and_a_folder(tmp_path):
    shares = []
    found = rx.run_sweep(SMALL, seed=4, progress=shares.append)
    assert sum(shares) == pytest.approx(1.0)
    assert found.rate.dims == ("panel", "momentum", "period")
    Path("small.toml").write_text(
        "\n".join(f"{name} = {_toml(value)}" for name, value in SMALL.items())
    )
    stored = rx.run_sweep("small.toml", out=tmp_path / "kept", seed=4)
    xr.testing.assert_identical(found, stored)
    path = tmp_path / "kept" / "results" / "tiny.zarr"
    xr.testing.assert_identical(rx.open_store(path), stored)
    before = tree(path)
    xr.testing.assert_identical(rx.run_sweep(SMALL, out=tmp_path / "kept", seed=4), stored)
    assert tree(path) == before
    with pytest.raises(StoreError, match="seed = 4, not 5"):
        rx.run_sweep(SMALL, out=tmp_path / "kept", seed=5)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"processes": 0}, "processes"),
        ({"seed": -1}, "seed"),
    ]
    for settings, words in bad:
        with pytest.raises(rx.ArgumentError, match=words):
            rx.run_sweep(SMALL, **settings)
    with pytest.raises(rx.ArgumentError, match="scale"):
        rx.run_sweep(SMALL, scale="large")
    assert plot_sweep(stored).axes


def _toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.slow
def test_processes_share_a_sweep_and_a_killed_one_goes_on(tmp_path):
    script = tmp_path / "script.py"
    table = json.dumps({**SMALL, "run": {"runs": 2, "steps": 80_000, "window": 20}, "chunk": 1})
    script.write_text(
        "import json, sys, resonax as rx\n"
        "if __name__ == '__main__':\n"
        f"    rx.run_sweep(json.loads({table!r}), out=sys.argv[1], processes=int(sys.argv[2]))\n"
    )

    def start(*given: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, script, *given], cwd=tmp_path)

    assert start("calm", "1").wait() == 0
    process = start("hard", "2")
    markers = tmp_path / "hard" / "results" / "tiny.zarr" / "tasks"
    while not list(markers.glob("[0-9]*.json")):
        assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert start("hard", "2").wait() == 0
    assert tree(tmp_path / "hard") == tree(tmp_path / "calm")


def test_figures_in_parts_are_those_of_several_tasks():
    records = catalogue((), "paper")
    assert {one.id for one in records if len(one.layout.tasks()) > 1} == IN_PARTS
