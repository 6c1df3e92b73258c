"""Problem setting, spectra and propositions: their contents, claims that can fail, figures."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from resonax.core.errors import ArgumentError
from resonax.figures.style import save_figure
from resonax.paper.catalogue import catalogue, judge
from resonax.paper.propositions import compute_propositions
from resonax.paper.spectra import compute_spectra
from resonax.paper.trajectories import growth_per_turn
from resonax.store import open_store
from resonax.sweeps.runner import run_experiments

# What `spectra` and `propositions` compute takes long; tests/test_claims.py has their judges.
slow = pytest.mark.slow

RECORDS = {
    "problem-setting": catalogue(("problem-setting",))[0],
    "spectra": catalogue(("spectra",), "paper")[0],
    "propositions": catalogue(("propositions",))[0],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("illustrations")


def stored(folder, name: str) -> xr.Dataset:
    run_experiments([RECORDS[name]], folder, seed=3)
    return open_store(folder / "results" / f"{name}.zarr")


@pytest.fixture(scope="module")
def setting(folder) -> xr.Dataset:
    return stored(folder, "problem-setting")


@pytest.fixture(scope="module")
def spectra(folder) -> xr.Dataset:
    return stored(folder, "spectra")


@pytest.fixture(scope="module")
def propositions(folder) -> xr.Dataset:
    return stored(folder, "propositions")


def judge_spectral_peaks(dataset: xr.Dataset):
    return judge([RECORDS["spectra"]], {"spectra": dataset})[0]


def judge_propositions(dataset: xr.Dataset):
    return judge([RECORDS["propositions"]], {"propositions": dataset})


def claim(dataset: xr.Dataset, name: str):
    return {each.id: each for each in judge_propositions(dataset)}[name]


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("problem-setting", 2),
        pytest.param("spectra", 24, marks=slow),
        pytest.param("propositions", 3, marks=slow),
    ],
)
def test_figures_draw_from_what_is_stored(name, axes, folder, tmp_path):
    draw = RECORDS[name].draw
    assert draw is not None
    figure = draw(stored(folder, name))
    assert len(figure.axes) == axes
    assert all(drawn.has_data() for drawn in figure.axes)
    save_figure(figure, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 20_000


def test_problem_setting_is_a_fixed_line_seen_through_a_moving_gaussian(setting):
    mean = 0.5 * np.sin(2 * np.pi * setting.step / 100)
    np.testing.assert_allclose(setting["mean"], mean, atol=1e-12)
    off = (setting.input - setting["mean"]).values
    assert off.var() == pytest.approx(setting.attrs["variance"], rel=0.1)
    # The line through all samples is the fixed one: the standard error of its slope is 0.005.
    slope, bias = np.polyfit(setting.input.values.ravel(), setting.target.values.ravel(), 1)
    want = setting.attrs["weights"]
    assert [slope, bias] == pytest.approx(want, abs=0.03)
    np.testing.assert_allclose(setting.line, want[0] * setting.x + want[1])
    area = np.trapezoid(setting.density, setting.x, axis=1)
    np.testing.assert_allclose(area, 1, atol=1e-3)


@slow
def test_spectra_agree_with_their_closed_forms(spectra):
    assert spectra.density.dims == ("panel", "series", "frequency")
    assert spectra.sizes["panel"] == 12
    ratio = (spectra.density / spectra.closed_form).sel(series="input")
    # 399 segments that overlap by half: a relative error of about 0.05 a bin.
    np.testing.assert_allclose(ratio.mean("frequency"), 1, atol=0.05)
    assert float(ratio.std("frequency").max()) < 0.3
    # The density of the input is that of its mean with a floor, the variance around the mean.
    floor = spectra.closed_form.sel(series="input") - spectra.closed_form.sel(series="mean")
    want = np.where(spectra.process.isin(["sinusoid", "ar2"]), 1.0, 0.25)
    np.testing.assert_allclose(floor, np.broadcast_to(want[:, None], floor.shape), atol=1e-9)
    # Path and input belong together: what is left is the noise around the mean.
    noise = spectra.path.sel(series="input") - spectra.path.sel(series="mean")
    np.testing.assert_allclose(noise.var("step"), want, rtol=0.35)


@slow
def test_spectral_peaks_hold(spectra):
    found = judge_spectral_peaks(spectra)
    assert found.holds is True
    assert len(found.cases) == 15


def shifted(dataset: xr.Dataset, panel: str, bins: int) -> xr.Dataset:
    """Move the densities of one panel along the frequency axis."""
    other = dataset.copy(deep=True)
    for name in ("density", "part_density"):
        values = other[name].loc[{"panel": panel}].values
        other[name].loc[{"panel": panel}] = np.roll(values, bins, axis=-1)
    return other


@slow
@pytest.mark.parametrize(
    "panel", ["sinusoid f=0.01", "ar2 f=0.03", "square T=150", "switching T=30", "switching T=50"]
)
@pytest.mark.parametrize("bins", [-2, 2])
def test_a_density_that_is_shifted_fails(spectra, panel, bins):
    found = judge_spectral_peaks(shifted(spectra, panel, bins))
    assert found.holds is False
    assert all(case.case.startswith(panel) for case in found.cases if not case.holds)
    assert found.worst.case == panel


@slow
def test_a_missing_harmonic_and_a_peak_off_zero_fail(spectra):
    smooth = spectra.copy(deep=True)
    here = {"panel": "square T=50", "series": "mean"}
    smooth.part_density.loc[here] = 1 / (1 + np.abs(smooth.frequency.values - 0.02))  # no harmonics
    assert judge_spectral_peaks(smooth).holds is False
    bumped = spectra.copy(deep=True)
    bump = 6 * np.exp(-(((bumped.frequency.values - 0.15) / 0.01) ** 2))
    bumped.part_density.loc[{"panel": "switching T=10"}] += bump
    failed = [case.case for case in judge_spectral_peaks(bumped).cases if not case.holds]
    assert any("off zero" in case for case in failed)


@slow
def test_all_propositions_but_one_hold(propositions):
    # Friction leaves directions along which solutions converge, wherever others diverge.
    outcomes = {claim.id: claim.holds for claim in judge_propositions(propositions)}
    assert outcomes.pop("all-other-solutions") is False
    assert set(outcomes.values()) == {True}, outcomes
    expected = propositions.gradient_expected
    used = (propositions.weight < propositions.weights).broadcast_like(expected)
    assert int(used.sum()) == 144
    assert bool((np.isfinite(expected) == used).all())
    target = propositions.gradient_expected.sel(point="target").values
    assert np.nanmax(np.abs(target)) == 0
    signs = np.sign(propositions.log_radius.sel(dynamics="flow").values)
    assert set(signs) == {-1.0, 1.0}


@slow
def test_a_wrong_curvature_fails(propositions):
    halved = propositions.assign(gradient_expected=propositions.gradient_expected / 2)
    assert claim(halved, "gradient-is-linear").holds is False
    # One weight of one process at one step is enough.
    other = propositions.copy(deep=True)
    where = {"process": "square", "moment": 1, "point": "first", "weight": 4}
    other.gradient_expected.loc[where] += 6 * other.gradient_error.loc[where]
    assert not claim(other, "gradient-is-linear").holds
    # A matrix that does not move contradicts the proposition as well.
    still = propositions.isel(moment=[0, 0, 0])
    assert not claim(still, "gradient-is-linear").holds


@slow
@pytest.mark.parametrize("name", ["global_error", "local_error"])
@pytest.mark.parametrize("power", [-0.25, 0.25])
def test_another_order_fails(propositions, name, power):
    bent = propositions.assign({name: propositions[name] * propositions.lr**power})
    assert not claim(bent, "first-order").holds


@slow
def test_another_integrator_or_a_lost_number_fails(propositions):
    for factor in (1e3, np.nan):
        other = propositions.assign(rounding=propositions.rounding * factor)
        assert not claim(other, "first-order").holds


@slow
@pytest.mark.parametrize(
    "change", [lambda log: 1.05 * log, lambda log: -log, lambda log: log + 0.01]
)
def test_another_radius_fails(propositions, change):
    other = propositions.assign(log_radius=change(propositions.log_radius))
    assert not claim(other, "floquet").holds


@slow
def test_one_sided_settings_fail(propositions):
    growing = propositions.log_radius.sel(dynamics="flow") > 0
    assert not claim(propositions.isel(setting=growing.values), "floquet").holds


def test_growth_per_turn_is_not_misled_by_a_swing():
    turn = np.arange(201)
    swing = np.log(1.5 + np.cos(0.19 * turn + 1.0))
    assert growth_per_turn(0.05 * turn + swing) == pytest.approx(0.05, abs=2e-4)


def test_too_few_draws_are_refused():
    with pytest.raises(ArgumentError, match="steps must be at least"):
        compute_spectra(0, 1000)
    with pytest.raises(ArgumentError, match="samples must be at least"):
        compute_propositions(0, 10)
