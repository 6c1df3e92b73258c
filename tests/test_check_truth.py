"""What a check says, against truths that it has no part in: verdicts, causes, remedies, peaks."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import resonax as rx
from recordings import RECORDINGS
from resonax.checking.rhythms import SIGNIFICANCE, find_peaks
from resonax.cli.app import _run
from resonax.learners import Linear
from resonax.recordings.recording import Recording
from resonax.rows.answers import judge_rows
from resonax.rows.exact import Exact
from resonax.rows.feed import principal_axes
from resonax.rows.subject import Subject


def _benchmark() -> ModuleType:
    path = Path(__file__).parent.parent / "benchmarks" / "check_streams.py"
    spec = importlib.util.spec_from_file_location("check_streams", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_streams"] = module
    spec.loader.exec_module(module)
    return module


streams = _benchmark()


@pytest.mark.parametrize("index", range(8))
def test_made_streams_are_judged_right(index, monkeypatch):
    """One of each family, of another seed than those tuned on or reported; see the benchmark."""
    monkeypatch.setattr(streams, "TRAINED_STEPS", 3_000)
    monkeypatch.setattr(streams, "CONTINUED", 5_000)
    found = streams.judge(seed=2, index=index, most=400)
    assert found.counts["rows"] == 1
    assert found.remarks == []


def test_the_table_of_the_benchmark_counts_what_is_wrong():
    right, wrong = streams.Outcome("iid"), streams.Outcome("one")
    right.counts.update({"rows": 1, "remedy": 3})
    wrong.counts.update({"rows": 1, "rows!": 1})
    lines = streams.table([right, wrong]).splitlines()
    assert lines[1].split()[-1] == "1/2"
    assert lines[5].split()[-1] == "0/3"


def exact(path: list[float], radius: float | None = -1.0) -> Exact:
    passes = path[-1] + (radius or 0.0) * np.arange(20)
    return Exact(np.array(path), passes, 1, radius)


@pytest.mark.parametrize(
    ("path", "radius", "verdict"),
    [
        ([-1.0, -2.0], -1.0, "converges"),
        ([-1.0, -1e-9], -1.0, "converges"),
        ([-5.0, 1e-9], 1e-3, "diverges"),
        ([3.0, 30.0], 30.0, "diverges"),
        ([3.0, 30.0], None, "diverges"),  # nobody knows what further passes would do
        ([3.0, 30.0], -1.0, "diverges"),  # and 20 of them do not take it back
        ([0.0, 0.1], -1e-9, "diverges"),
        ([0.0, 0.1], -4.0, "converges"),  # a little larger, and the next pass takes it back
        ([10.2, 0.1], -4.0, "rises"),  # 27,000-fold on the way: that is the news
        ([20.0, -1.0], -1.0, "rises"),  # a rise of e^20 on the way is never simply safe
        ([-20.0, -10.0], -1.0, "rises"),
        ([3.0, -1.0], -1.0, "converges"),
    ],
)
def test_the_verdict_on_these_rows_is_of_the_whole_path(path, radius, verdict):
    found = judge_rows(exact(path, radius), 8)
    assert (found.verdict, found.is_harmful) == (verdict, verdict != "converges")


def test_a_rise_on_the_way_is_told_where_it_is():
    text = judge_rows(exact([-1.0, 5.0, 9.0, 0.1], -4.0), 4).meaning()
    assert "rises 2.2e+04-fold from step 1 to 3, and ends at 1.1 times what it was" in text
    assert "each further pass multiplies it by 0.018" in text


def test_a_swing_of_demand_that_ruins_a_run_is_no_divergence_and_is_told():
    """Half-hourly demand, two lags, river: the fit is lost on the way, and found again."""
    demand = RECORDINGS["taylor"]()[0][:, 0]
    X, y = np.column_stack([demand[1:-1], demand[:-2]]), demand[2:]
    found = rx.check(X, y, lr=0.005, momentum=0.99, optimizer="river", grid=2)
    assert (found.verdict, found.cause) == ("rises", "order")
    assert found.pass_radius < 1 < math.exp(found.on_these_rows.log_growth)
    assert "rises 126-fold from step 1,533 to 3,990" in found.meaning()
    assert found.shuffling_helps
    # The truth: the squared error of the model itself, in the standard deviation of the target.
    error = found.dataset.error.sel(order="chronological").values
    assert error[:100].min() < -1 < 2 < error.max()


def test_more_passes_that_would_grow_are_told():
    fine, later = (judge_rows(exact([-1.0], radius), 8) for radius in (-0.5, 0.5))
    assert not fine.grows_later
    assert later.grows_later
    assert (later.verdict, exact([-1.0], 0.5).never_grows) == ("converges", False)


def heavy_ball(X: np.ndarray, y: np.ndarray, lr: float, momentum: float, passes: int) -> float:
    """Train a plain NumPy learner with a bias; return the largest size of its weights."""
    rows = np.hstack([X, np.ones((len(X), 1))])
    weights, velocity, largest = np.zeros(rows.shape[1]), np.zeros(rows.shape[1]), 0.0
    for _ in range(passes):
        for row, wanted in zip(rows, y, strict=True):
            velocity = momentum * velocity - lr * 2 * (row @ weights - wanted) * row
            weights = weights + velocity
            largest = max(largest, float(np.abs(weights).max()))
    return largest


def test_so_few_rows_are_not_called_safe_with_a_momentum_that_grows():
    """235 years of sunspots: with momentum 0.999 one pass looks harmless, and twenty do not."""
    months = RECORDINGS["sunspots"]()[0][:, 0]
    years = months[: len(months) // 12 * 12].reshape(-1, 12).mean(axis=1)
    years = (years - years.mean()) / years.std()
    X, y = years[:-1, None], years[1:]
    assert heavy_ball(X, y, 0.01, 0.999, 1) < 10
    assert heavy_ball(X, y, 0.01, 0.999, 20) > 1e20
    found = rx.check(X, y, lr=0.01, momentum=0.95, grid=2)
    assert not found.to_dict()["is_lower_bound"]["momentum"]
    given = 0
    for name in ("momentum", "lr", "fastest_momentum"):
        value = found.safe[name]
        if value is not None:
            lr, momentum = (value, 0.95) if name == "lr" else (0.01, value)
            assert heavy_ball(X, y, lr, momentum, 20) < 100
            given += 1
    assert given
    assert found.on_more.verdict == "undecided"
    assert "undecided (the interval includes 0)" in str(found)


def held(rng: np.random.Generator, rows: int, period: int) -> np.ndarray:
    """The paper's switching stream: a mean drawn anew every few steps."""
    means = 0.5 * rng.normal(size=(rows // period + 1, 5))
    return np.repeat(means, period, axis=0)[:rows] + 0.5 * rng.normal(size=(rows, 5))


def test_a_stream_without_a_rhythm_is_given_none():
    found = rx.check(
        held(np.random.default_rng(0), 2000, 6), lr=0.01, momentum=0.97, standardise=False, grid=2
    )
    assert (found.verdict, found.on_more.verdict) == ("diverges", "diverges")
    assert (found.cause, found.period, found.rhythm) == ("order", None, None)
    assert "no single rhythm was found" in found.explanation()


def test_one_of_many_rhythms_is_not_named_if_the_others_go_on():
    step, rng = np.arange(6000), np.random.default_rng(0)
    waves = [np.sin(2 * np.pi * step / period + period) for period in range(24, 217, 24)]
    found = rx.check(sum(waves) + 0.3 * rng.normal(size=6000), lr=0.01, momentum=0.97, grid=2)
    assert (found.verdict, found.cause, found.period) == ("diverges", "order", None)


@pytest.mark.parametrize("kind", ["white", "red", "switching", "heavy"])
def test_peaks_are_found_in_no_smooth_spectrum(kind):
    """60 recordings each: at the stated significance more than 1 peak occurs in 2 of 10^3 times."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(60):
        rows = int(rng.integers(300, 1500))
        noise = rng.normal(size=(rows, 2))
        if kind == "red":
            noise = np.cumsum(noise, axis=0)
        elif kind == "switching":
            noise = held(rng, rows, 6)
        elif kind == "heavy":
            noise = rng.standard_t(2.5, size=(rows, 2))
        found += bool(find_peaks(noise, 2.2, rows / 6))
    assert SIGNIFICANCE == 1e-3
    assert found <= 1


@pytest.mark.parametrize("period", [7.3, 24.0, 31.7])
def test_a_line_is_found_where_it_is(period):
    rng = np.random.default_rng(0)
    for rows in (400, 5000):
        line = np.sin(2 * np.pi * np.arange(rows) / period)
        signal = np.stack([rng.normal(size=rows), line + rng.normal(size=rows)], axis=1)
        strongest = find_peaks(signal, 2.2, rows / 6)[0]
        assert abs(1 / strongest.period - 1 / period) < 0.5 / rows


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * np.arange(400) / 24) + 0.5 * rng.normal(size=400)
    path = tmp_path_factory.mktemp("data") / "hourly.csv"
    np.savetxt(path, np.stack([x, np.roll(x, -1)], 1), delimiter=",", header="x,y", comments="")
    return path


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--lr 2 --momentum 0.9 --intercept-lr 0", 1),
        ("--lr 0.01 --momentum 0.9 --weight-decay 1e5", 1),
        pytest.param("--lr 1 --momentum 0.9 --weight-decay 300", 1, marks=pytest.mark.slow),
        pytest.param("--lr 0.01 --momentum 0.5 --weight-decay 10", 0, marks=pytest.mark.slow),
        pytest.param(
            "--lr 0.01 --momentum 0.9 --weight-decay 1e6 --basis fourier:1",
            1,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_violent_settings_are_counted_and_not_blamed_on_the_order(table, words, status, capsys):
    code, _ = _run(["check", str(table), "--target", "y", *words.split(), "--grid", "2", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == status
    rows, more = found["on_these_rows"], found["on_more"]
    assert (rows["log_growth"] > 0) == bool(status)
    assert rows["log_growth"] == pytest.approx(400 * more["rate"])
    assert found["cause"] == ("generic" if status else "none")
    if "1e5" in words:  # heavy ball on a constant curvature: the larger root of its polynomial
        steep = 1 + 0.9 - 0.01 * 1e5
        root = max(abs(np.roots([1, -steep, 0.9])))
        assert more["rate"] == pytest.approx(math.log(root), rel=1e-2)


def test_numbers_beyond_counting_are_told_in_a_sentence():
    rows = np.random.default_rng(0).normal(size=(300, 1)).astype(np.float32)
    recording = Recording(rows, None, ("x",), None, "array", ())
    model = replace(principal_axes(Linear(), recording.inputs), largest=1e80)
    asked = Subject(rx.heavy_ball(0.1, 0.9), model, recording=recording)
    with pytest.raises(rx.ArgumentError, match="exceeds what can be counted"):
        asked.measure()
