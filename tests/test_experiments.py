"""Sweeps as data: specifications, what a sweep computes, claims, and the commands that run them."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from resonax import ArgumentError
from resonax.cli.app import _run
from resonax.paper.catalogue import EXPERIMENTS, catalogue
from resonax.spec.sweep_checks import parse_sweep
from resonax.store import locked, open_store
from resonax.sweeps.experiment import Experiment
from resonax.sweeps.sweep import compute_sweep, sweep_layout

SWEEP = {
    "id": "tiny",
    "process": {"kind": "sinusoid", "amplitude": 0.5, "variance": 1.0},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    "train": {"batch": 20},
    "run": {"runs": 3, "steps": 400, "window": 100},
    "axes": {
        "momentum": {"values": [0.9, 0.98]},
        "period": {"first": 20, "last": 40, "count": 4},
    },
}
TOML = """
id = "tiny"
process = { kind = "sinusoid", amplitude = 0.5, variance = 1.0 }
optimizer = { kind = "heavy_ball", lr = 0.01 }
train = { batch = 20 }
run = { runs = 3, steps = 400, window = 100 }
chunk = 2
[axes.momentum]
values = [0.9, 0.98]
[axes.period]
first = 20
last = 40
count = 16
"""


def changed(**changes):
    """Return the small sweep with some entries replaced, by dotted names."""
    table = json.loads(json.dumps(SWEEP))
    for path, entry in changes.items():
        home, *names = table, *path.split("__")
        for name in names[:-1]:
            home = home.setdefault(name, {})
        home[names[-1]] = entry
    return table


@functools.cache
def paper_at(scale: str) -> tuple[Experiment, ...]:
    """Return all experiments of the paper, which several tests look at."""
    return tuple(catalogue(scale=scale))


def tree(folder: Path) -> dict[str, str]:
    """Return the hash of every file."""
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("scale", ["smoke", "paper"])
def test_every_figure_of_the_paper_has_an_experiment(scale):
    found = paper_at(scale)
    assert [item.id for item in found] == list(EXPERIMENTS)
    assert len(found) == 14  # the thirteen of the paper's figures, and the propositions
    for item in found:
        assert item.caption
        assert item.paper
        json.dumps(item.specification)


def test_the_papers_scale_is_the_papers():
    by_id = {item.id: item for item in paper_at("paper")}
    for name in ("sinusoid-map", "ar2-map"):
        made = by_id[name].specification
        assert by_id[name].layout.coords["momentum"].shape == (100,)
        assert by_id[name].layout.coords["period"].shape == (100,)
        assert made["run"] == {"runs": 10, "steps": 10_000, "window": 500}
        assert made["train"]["batch"] == 20
        assert 1 / by_id[name].layout.coords["period"].min() == pytest.approx(0.05)
    assert by_id["square-samples"].layout.coords["period"].tolist() == list(range(121))
    assert by_id["switching-network"].specification["run"]["runs"] == 20
    assert by_id["switching-network"].specification["run"]["steps"] == 20_000


MISTAKES = {
    "unknown key": ({"colour": 1}, "colour is not a known key"),
    "unknown inner key": ({"run__stepps": 100}, "run.stepps is not a known key"),
    "unknown key of an axis": ({"axes__period__size": 3}, "axes.period.size is not a known key"),
    "unknown process": ({"process__kind": "sinus"}, "sinusoid"),
    "unknown process number": ({"process__amplitudd": 1.0}, "process.amplitudd"),
    "unknown optimizer": ({"optimizer__kind": "sgdm"}, "optimizer.kind"),
    "unknown optimizer number": ({"optimizer__rate": 1.0}, "optimizer.rate"),
    "unknown optax": ({"optimizer__kind": "optax.nothing"}, "optax.nothing"),
    "steps": ({"run__steps": 1001}, "run.steps"),
    "batch": ({"train__batch": 0}, "train.batch"),
    "no count": ({"axes__period": {"first": 1, "last": 2}}, "axes.period"),
    "one axis": ({"axes": {"period": {"values": [20]}}}, "axes"),
    "limits of no axis": (
        {"panels": [{"name": "one", "limits": {"lr": [0, 1]}}]},
        "lr is not an axis",
    ),
    "no lr": ({"optimizer": {"kind": "heavy_ball"}}, "optimizer.lr is missing"),
    "impossible axis": (
        {
            "optimizer__momentum": 0.9,
            "axes": {"beta1": {"values": [0.9]}, "period": {"values": [20.0]}},
        },
        "beta1",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_a_sweep_is_named_with_its_path(case):
    changes, words = MISTAKES[case]
    with pytest.raises(ArgumentError) as found:
        sweep_layout(parse_sweep(changed(**changes), where="mine.toml"))
    assert words in str(found.value)
    assert "\n" not in str(found.value)


def test_a_sweep_does_not_depend_on_its_chunks():
    whole = parse_sweep(SWEEP)
    everything = compute_sweep(whole, {}, seed=3)
    for part in (slice(0, 1), slice(1, 4)):
        piece = compute_sweep(whole, {"period": part}, seed=3)
        for name, values in piece.items():
            np.testing.assert_array_equal(values, everything[name][:, :, part])
    assert (compute_sweep(whole, {}, seed=4)["rate"] != everything["rate"]).any()


def test_cells_outside_the_limits_of_a_panel_are_left_out():
    panels = [{"name": "one", "limits": {"period": [20, 30]}}]
    found = compute_sweep(parse_sweep(changed(panels=panels)), {}, seed=0)
    inside = np.isfinite(found["rate"][0]).all(axis=0)
    assert inside.tolist() == [True, True, False, False]


def test_unshared_cells_have_their_own_random_numbers():
    shared = compute_sweep(
        parse_sweep(changed(axes__momentum__values=[0.98, 0.98 + 1e-9])), {}, seed=0
    )
    alone = compute_sweep(
        parse_sweep(changed(share=False, axes__momentum__values=[0.98, 0.98 + 1e-9])), {}, seed=0
    )
    np.testing.assert_allclose(shared["run_rate"][0, 0], shared["run_rate"][0, 1], atol=1e-5)
    assert np.abs(alone["run_rate"][0, 0] - alone["run_rate"][0, 1]).max() > 1e-4


def test_any_optax_optimizer_sweeps():
    table = changed(
        optimizer={"kind": "optax.rmsprop", "lr": 0.01},
        axes__decay={"values": [0.9, 0.99]},
    )
    del table["axes"]["momentum"]
    table["axes"] = {"decay": table["axes"]["decay"], "period": table["axes"]["period"]}
    found = compute_sweep(parse_sweep(table), {}, seed=0)
    assert np.isfinite(found["log_response"]).all()
    assert (found["log_response"][0, 0] != found["log_response"][0, 1]).any()


REPRODUCE = ["reproduce", "problem-setting", "--out", "out"]  # as in docs/reproduce.md


def test_reproduce_from_end_to_end(tmp_path, caplog):
    assert _run(REPRODUCE) == (0, "")
    out = tmp_path / "out"
    before, drawn = tree(out / "results"), tree(out / "figures")
    assert {path.name for path in out.iterdir()} == {
        "figures",
        "results",
        "report.html",
        "claims.json",
        "claims.md",
    }
    assert (out / "figures" / "problem-setting.svg").stat().st_size > 1000
    assert open_store(out / "results" / "problem-setting.zarr").sizes
    damaged = out / "results" / "problem-setting.zarr" / "input" / "c.0.0"
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert _run(REPRODUCE) == (0, "")
    told = "problem-setting.zarr: 1 of 1 tasks damaged or missing, computed again"
    assert told in caplog.messages[0]
    assert (tree(out / "results"), tree(out / "figures")) == (before, drawn)
    with locked(out):
        status, words = _run(REPRODUCE)
        assert status == 2
        assert f"out is being written by process {os.getpid()}" in words
    status, words = _run([*REPRODUCE, "--seed", "1"])
    assert status == 2
    assert "seed = 0, not 1" in words


def test_a_sweep_from_end_to_end(tmp_path):
    (tmp_path / "tiny.toml").write_text(TOML.replace("count = 16", "count = 4"))
    assert _run(["sweep", "tiny.toml"]) == (0, "")
    stored = xr.open_zarr(tmp_path / "out" / "results" / "tiny.zarr")
    assert stored.rate.dims == ("panel", "momentum", "period")
    assert float(stored.rate.sel(momentum=0.98).max()) > 0
    (tmp_path / "tiny.toml").write_text(TOML.replace("0.5", "0.6"))
    status, words = _run(["sweep", "tiny.toml"])
    assert status == 2
    assert "process.amplitude = 0.5, not 0.6" in words


@pytest.mark.slow
def test_a_sweep_killed_ten_times_ends_as_if_undisturbed(tmp_path):
    """SIGKILL at random moments; the last run's store equals an undisturbed one, bit for bit."""
    text = TOML.replace("steps = 400", "steps = 40000").replace("chunk = 2", "chunk = 1")
    (tmp_path / "tiny.toml").write_text(text.replace("count = 16", "count = 24"))
    command = [sys.executable, "-m", "resonax", "sweep", "tiny.toml", "--out"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    finished = tmp_path / "hard" / "results" / "tiny.zarr" / "tasks"

    def run(folder: str) -> subprocess.Popen:
        return subprocess.Popen([*command, folder], cwd=tmp_path, env=environment)

    def marks() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in finished.glob("[0-9]*.json")}

    assert run("calm").wait() == 0
    moments = random.Random(0)
    for number in range(10):
        before = marks()
        process = run("hard")
        if number % 2:  # in the middle of the work: after another task was finished
            while len(marks()) == len(before) and process.poll() is None:
                time.sleep(0.02)
        else:  # while it starts
            time.sleep(moments.uniform(0.0, 5.0))
        time.sleep(moments.uniform(0.0, 0.5))
        process.kill()
        assert process.wait() == -signal.SIGKILL  # it was still at work
        now = marks()
        assert {name: now.get(name) for name in before} == before  # kept, and not made again
    assert 5 <= len(marks()) < 24
    before = marks()
    assert run("hard").wait() == 0
    now = marks()
    assert len(now) == 24
    assert {name: now[name] for name in before} == before
    assert tree(tmp_path / "hard" / "results") == tree(tmp_path / "calm" / "results")
