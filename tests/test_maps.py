"""Maps, searches and verdicts: labels, agreement with single settings, what they find."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import resonax as rx
from resonax.store.saved import open_dataset, save_dataset
from resonax.theory.lyapunov import Interval
from resonax.theory.verdict import MeanSquare, _verdict_word

VALUES = {
    "momentum": [0.9, 0.97],
    "period": [21.0, 22.5, 30.0],
    "lr": [0.005, 0.01],
    "amplitude": [0.0, 0.5],
    "batch": [1, 20],
    "variance": [0.5, 1.0],
    "weight_decay": [0.0, 0.1],
}


PAIRS = list(itertools.combinations(VALUES, 2))
ONCE = [
    ("momentum", "period"),
    ("lr", "amplitude"),
    ("batch", "variance"),
    ("momentum", "weight_decay"),
]


@pytest.mark.parametrize(
    ("criterion", "pairs"),
    [
        ("map", ONCE),
        *(
            pytest.param(name, PAIRS if name == "map" else PAIRS[::4], marks=pytest.mark.slow)
            for name in ("flow", "map", "mean_square", "lyapunov")
        ),
    ],
    ids=["map, each axis once", "flow", "map", "mean_square", "lyapunov"],
)
def test_every_pair_of_axes_equals_its_single_settings(paper, criterion, pairs):
    for first, second in pairs:
        found = rx.stability_map(paper, criterion, **{first: VALUES[first], second: VALUES[second]})
        assert found.rate.dims == (first, second)
        assert np.isfinite(found.rate.values).all()
        cell = {first: VALUES[first][-1], second: VALUES[second][0]}
        single = paper.at(cell)  # a batch stays a whole number: another type, another program
        alone = rx.rates(single, {"momentum": [single.optimizer.momentum]}, criterion)
        assert float(found.rate.sel(cell)) == pytest.approx(alone[0], abs=1e-9)


def test_an_interpolated_map_needs_no_axis_of_momentum_or_period(paper):
    """What is interpolated has its friction divided out, a number of all cells here."""
    axes = {"lr": np.linspace(0.005, 0.02, 64), "variance": np.linspace(0.5, 1.5, 128)}
    found = rx.stability_map(paper, "flow", lr=axes["lr"], variance=axes["variance"]).rate
    cell = {name: array[::50] for name, array in axes.items()}
    first, second = np.meshgrid(*cell.values(), indexing="ij")
    alone = rx.rates(paper, {"lr": first.ravel(), "variance": second.ravel()}, "flow")
    np.testing.assert_allclose(found.sel(cell).values.ravel(), alone, atol=1e-9)


def test_labels_units_and_provenance(paper, tmp_path):
    found = rx.stability_map(paper, momentum=[0.9, 0.99], period=[22.0, 30.0, 31.0])
    assert found.rate.attrs["units"] == "1/step"
    assert found.period.attrs == {"long_name": "period", "symbol": "T", "units": "steps"}
    described = json.loads(found.attrs["setting"])
    assert described["process"]["kind"] == "Sinusoid"
    assert described["optimizer"]["lr"] == 0.01
    assert found.attrs["criterion"] == "map"
    assert found.attrs["version_jax"]
    save_dataset(found, tmp_path / "map.nc")
    assert open_dataset(tmp_path / "map.nc").identical(found)
    assert [path.name for path in tmp_path.iterdir()] == ["map.nc"]


def test_a_map_does_not_depend_on_its_chunks(paper):
    """Enough cells for several chunks, in an order that mixes short and long products."""
    momentum, period = np.linspace(0.9, 0.99, 30), np.linspace(15, 60, 40)
    whole = rx.stability_map(paper, momentum=momentum, period=period).rate
    part = rx.stability_map(paper, momentum=momentum[5:8], period=period[10:20]).rate
    same = whole.sel(momentum=part.momentum, period=part.period)
    # Another shape is another compiled program: the last bits may differ, no more.
    np.testing.assert_allclose(same, part, rtol=1e-12)


@pytest.mark.slow
def test_lyapunov_maps_carry_their_interval():
    setting = rx.Setting(rx.AR2(period=22), rx.heavy_ball(0.01, 0.97), batch=20)
    found = rx.stability_map(setting, "lyapunov", momentum=[0.9, 0.99], batch=[5, 20])
    assert (found.low < found.rate).all()
    assert (found.rate < found.high).all()


@pytest.mark.parametrize(
    ("axes", "word"),
    [
        ({"momentum": [0.9]}, "two axes"),
        ({"momentum": [0.9], "perod": [22]}, "did you mean 'period'"),
        ({"momentum": [0.9, 1.0], "period": [22]}, "momentum must be at least 0 and below 1"),
        ({"momentum": [0.9], "period": []}, "period must be a list"),
        ({"momentum": [0.9, 0.8], "period": [22]}, "increase"),
        ({"momentum": [0.9], "batch": [1.5]}, "whole number"),
    ],
)
def test_bad_axes(paper, axes, word):
    with pytest.raises(rx.ArgumentError, match=word):
        rx.stability_map(paper, **axes)


def test_criteria_that_do_not_apply_say_so():
    setting = rx.Setting(rx.AR2(period=22), rx.heavy_ball(0.01, 0.97))
    with pytest.raises(rx.ArgumentError, match="criterion must be lyapunov"):
        rx.stability_map(setting, "flow", momentum=[0.9, 0.99], period=[20, 22])
    with pytest.raises(rx.ArgumentError, match="did you mean 'mean_square'"):
        rx.stability_map(setting, "meansquare", momentum=[0.9, 0.99], period=[20, 22])


def test_the_tongue_reaches_down_to_0_966(paper):
    """readings.md: for 20 samples per step the tongue at T = 22 ends at about 0.966."""
    for criterion in ("flow", "map", "mean_square"):
        edge = rx.critical_momentum(paper, criterion)
        assert edge is not None
        assert edge == pytest.approx(0.966, abs=1e-3)
        # One by one, as the search asks for them.
        below, above = (
            rx.rates(paper, {"momentum": [edge + off]}, criterion)[0] for off in (-1e-6, 1e-6)
        )
        assert below < 0 < above


def test_critical_values_where_there_are_none(paper):
    calm = rx.Setting(rx.Sinusoid(period=30), rx.heavy_ball(0.01, 0.9))
    assert rx.critical_momentum(calm) is None
    wild = rx.Setting(rx.Sinusoid(period=30), rx.heavy_ball(5.0, 0.9))
    assert rx.critical_momentum(wild) == 0.0


def test_critical_lr_of_a_constant_law_is_known():
    """Heavy ball on a constant curvature b is stable up to eta = 2 (1 + mu) / b."""
    setting = rx.Setting(
        rx.Iid(variance=1.5), rx.heavy_ball(0.01, 0.8), model=rx.Linear(bias=False)
    )
    assert rx.critical_lr(setting) == pytest.approx(2 * 1.8 / 3.0, rel=1e-7)


@pytest.mark.parametrize(
    ("period", "amplitude", "lr", "criterion"),
    [
        (100, 0.5, 0.01, "flow"),
        (60, 0.5, 0.01, "flow"),
        (100, 0.5, 0.01, "map"),
        (60, 0.5, 0.1, "map"),
        (100, 1.0, 0.1, "map"),
    ],
)
def test_the_best_momentum_is_the_best_of_all(period, amplitude, lr, criterion):
    stream = rx.Sinusoid(period=period, amplitude=amplitude)
    setting = rx.Setting(stream, rx.heavy_ball(lr=lr, momentum=0.9))
    best = rx.best_momentum(setting, criterion)
    dense = rx.rates(setting, {"momentum": np.linspace(0, 0.999, 3001)}, criterion)
    assert best.rate <= dense.min() + 1e-9
    own = rx.rates(setting, {"momentum": np.array([best.momentum])}, criterion)
    assert own[0] == pytest.approx(best.rate, abs=1e-4)


def test_best_momentum_of_a_constant_law_is_polyaks():
    """One curvature b: the double root at mu = (1 - sqrt(eta b))^2, with rate log sqrt(mu)."""
    setting = rx.Setting(
        rx.Iid(variance=1.5), rx.heavy_ball(0.01, 0.8), model=rx.Linear(bias=False)
    )
    best = rx.best_momentum(setting)
    exact = (1 - np.sqrt(0.01 * 3.0)) ** 2
    # The minimum is a corner with a square-root side: the place is known to half the digits.
    assert best.momentum == pytest.approx(exact, abs=1e-5)
    assert best.rate == pytest.approx(np.log(exact) / 2, abs=1e-4)


def test_tongues_at_half_and_whole_natural_period():
    """Natural period 2 pi / sqrt(2 eta) = 44.4: tongues at 22 and at 44-45."""
    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(0.01, 0.998))
    found = rx.tongues(setting, 15, 60, points=181)
    peaks = [band.peak for band in found if band.rate > 1e-4]
    assert peaks == pytest.approx([22.0, 45.0], abs=1.0)
    for band in found:
        outside = rx.rates(setting, {"period": [band.low - 0.02, band.high + 0.02]}, "map")
        assert (outside < 1e-4).all()
        assert band.low <= band.peak <= band.high


@pytest.mark.slow
def test_verdict_of_every_process():
    optimizer = rx.heavy_ball(0.01, 0.9)
    for process, periodic in (
        (rx.Iid(), True),
        (rx.Sinusoid(period=30), True),
        (rx.Square(period=9), True),
        (rx.AR2(period=30), False),
        (rx.Switching(period=30), False),
        (rx.Recorded.of(np.random.default_rng(0).normal(size=(500, 1))), False),
    ):
        found = rx.verdict(rx.Setting(process, optimizer), paths=16, steps=512)
        assert found.verdict == "converges"
        assert (found.flow is not None) == periodic
        keys = {"verdict", "flow", "map", "mean_square", "lyapunov", "notes"}
        keys |= {"order_proof", "on_these_rows"}
        assert set(found.to_dict()) == keys
        rows = found.on_these_rows  # of a recording: what one pass over it does
        assert (rows.meaning() if rows else "halves every") in str(found)


@pytest.mark.parametrize(
    ("square", "interval", "word"),
    [
        (0.01, Interval(0.01, 0.005, 0.015), "diverges"),
        (-0.01, Interval(-0.02, -0.03, -0.01), "converges"),
        (0.01, Interval(-0.02, -0.03, -0.01), "marginal"),
        (None, Interval(0.0, -0.03, 0.03), "marginal"),
        (None, Interval(-0.02, -0.03, -0.01), "converges"),
    ],
)
def test_the_word(square, interval, word):
    growth = None if square is None else MeanSquare(square, 1.0, None)
    assert _verdict_word(growth, interval) == word
