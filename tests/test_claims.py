"""Every judge from both sides, its errors under the null, and too few runs for either word."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp
from scipy.special import gamma
from scipy.stats import binom

from resonax import Setting, Sinusoid, Square, Training, heavy_ball, simulate, stability_map
from resonax.paper.catalogue import catalogue
from resonax.paper.inference import SIGNIFICANCE, count_peaks, jackknife
from resonax.paper.maps import _bright_share
from resonax.paper.propositions_judges import (
    judge_all_solutions,
    judge_floquet,
    judge_gradient,
    judge_order,
)
from resonax.paper.responses import DIVERGES, log_mean_response
from resonax.paper.samples import NORMS
from resonax.paper.spectra import SIGNALS
from resonax.paper.spectra_judges import judge_spectral_peaks
from resonax.paper.theory_maps import BEST_STEP, LR, RESONANT, _best_momentum, theory_layout
from resonax.paper.trajectories import Drive, curvature, flow_sizes, stable_sizes
from resonax.reports.claims import claims_table, plain_claims
from resonax.simulation import summarise
from resonax.sweeps.judgement import Case, Claim
from resonax.theory.verdict import rates

Data = Mapping[str, xr.Dataset]
RUNS = 10
PERIODS = np.array([0, 1, 2, 3, 4, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100.0])
BAND = (PERIODS >= 5) & (PERIODS <= 40)


def specification(panels: Iterable[tuple[str, str, float]]) -> dict[str, str]:
    """Return the attribute of a sweep with panels of a name, a process and an lr."""
    tables = [
        {
            "name": name,
            "process": {"kind": kind},
            "model": {},
            "optimizer": {"lr": lr},
            "limits": {},
        }
        for name, kind, lr in panels
    ]
    theory = {"criteria": ["flow", "map", "lyapunov"], "process": {"kind": "sinusoid"}}
    empty = {"process": {}, "model": {}, "optimizer": {}}
    return {"specification": json.dumps({**empty, "panels": tables, "theory": theory})}


def curves(
    random: np.random.Generator, axis: str, values, logs: Any = 0.0, rates: Any = 0.0, runs=RUNS
):
    """Return a sweep of one panel: skewed responses and normal growth around given curves."""
    values = np.asarray(values, float)
    shape = (1, len(values), len(PERIODS), runs)
    dims = ("panel", axis, "period", "run")
    shared = random.normal(size=(1, 1, len(PERIODS), runs))  # all along the first axis
    scatter = 0.05 * (random.gumbel(size=shape) + shared)
    noise = 2e-5 * (random.normal(size=shape) + shared)
    logs, rates = (np.broadcast_to(one, shape[1:3])[None, :, :, None] for one in (logs, rates))
    return xr.Dataset(
        {"run_log_response": (dims, logs + scatter), "run_rate": (dims, rates + noise)},
        {"panel": ["one"], axis: values, "period": PERIODS},
        specification([("one", "switching", 0.01)]),
    )


def tongues(random: np.random.Generator, centres, runs=RUNS) -> xr.Dataset:
    """Return a sweep over batches that diverge around periods, one list of these for each batch."""
    rates = [
        np.max([np.where(np.abs(PERIODS - at) < 1, 20 * DIVERGES, 0) for at in row], axis=0)
        for row in centres
    ]
    return curves(random, "batch", np.arange(len(centres)) + 1, rates=np.array(rates), runs=runs)


def field(random, area: float, runs=RUNS, size: int = 24, spread: float = 0.02) -> np.ndarray:
    """Return rates of a map that grows in a share of its rows, (rows, columns, runs).

    The runs differ, and the cells of a column share their random numbers.
    """
    rows = (np.arange(size) + 0.5)[::-1] / size
    return area - rows[:, None, None] + spread * random.normal(size=(1, size, runs))


def maps(
    random,
    panels: Mapping[tuple[str, str, float], float],
    runs=RUNS,
    line: float | None = None,
    spread=0.02,
    columns: float | None = None,
):
    """Return maps with a divergent area each; the theory is exact unless its line is given.

    With ``columns`` only cells near one column diverge, others converge.
    """
    size = 24
    rates = np.array([field(random, area, runs, size, spread) for area in panels.values()])
    exact = np.array(
        [field(np.random.default_rng(0), area, 1, size, 0.0)[..., 0] for area in panels.values()]
    )
    moved = exact if line is None else exact + line
    if columns is not None:
        rates = rates - 0.05 * np.abs(np.arange(size) - columns * (size - 1))[None, None, :, None]
    dims = ("panel", "momentum", "period")
    return xr.Dataset(
        {
            "run_rate": ((*dims, "run"), rates),
            "run_log_response": ((*dims, "run"), 100 * rates),
            "flow_rate": (dims, moved),
            "map_rate": (dims, moved),
            "lyapunov_rate": (dims, moved),
            "lyapunov_low": (dims, moved - 1e-3),
            "lyapunov_high": (dims, moved + 1e-3),
        },
        {
            "panel": [name for name, _, _ in panels],
            "momentum": np.arange(size),
            "period": np.geomspace(20.0, 2000.0, size),
        },
        specification(panels),
    )


def both(random, areas, **given) -> xr.Dataset:
    """Return six panels, a sinusoid and AR(2) for each step size, with the same areas."""
    panels = {
        (f"panel {lr:g} {kind}", kind, lr): area
        for lr, area in zip(LR, areas, strict=True)
        for kind in ("sinusoid", "ar2")
    }
    return maps(random, panels, **given)


def best(momentum: Callable[[np.ndarray], np.ndarray], rise: float = 0.05) -> xr.Dataset:
    layout = theory_layout(30)
    period = layout.coords["wide_period"]
    values = np.array([momentum(period) + rise * number for number in range(len(LR))])
    return xr.Dataset(
        {"best_momentum": (("lr", "wide_period"), values)},
        {"lr": np.array(LR), "wide_period": period},
    )


def low_momentum(random, factor: float, runs: int = RUNS) -> Data:
    logs = np.log([np.where(PERIODS == 6, factor, 1.0), np.ones(len(PERIODS))])
    logs[0, 0] = 0.0
    return {"lower-momentum": curves(random, "momentum", [0.85, 0.95], logs=logs, runs=runs)}


def everywhere(random, factor: float) -> Data:
    logs = np.log([np.where(PERIODS > 0, factor, 1.0)] * 2)
    return {"lower-momentum": curves(random, "momentum", [0.85, 0.95], logs=logs)}


def adam(random, factor=1.0, order=0.0, growth=0.0, runs: int = RUNS) -> Data:
    beta1 = np.array([0.9, 0.95, 0.99])
    where = BAND if factor >= 1 else PERIODS > 0
    shape = np.where(where, np.log(factor), 0.0)
    logs = shape * (1 + order * np.arange(3)[:, None])
    rates = np.where(BAND, growth, 0.0) * np.ones((3, 1))
    data = curves(random, "beta1", beta1, logs, rates, runs)
    predicted = np.exp(logs) * gamma(0.95) * np.exp(0.05**2 / 2)  # the mean of what is drawn
    return {
        "switching-adam": data.assign(predicted_distance=(data.run_rate.dims[:3], predicted[None]))
    }


def adam_level(random, far: float, every: int = 1, runs: int = RUNS) -> Data:
    """Return predictions that are ``far`` times the truth at every so many periods, else exact."""
    data = adam(random, 2.0, order=1.0, runs=runs)["switching-adam"]
    off = np.where(np.arange(len(PERIODS)) % every == 1 % every, far, 1.0)
    return {"switching-adam": data.assign(predicted_distance=data.predicted_distance * off)}


def network(random, factor: float, runs: int = RUNS) -> Data:
    logs = np.where(BAND, np.log(factor), 0.0) * np.ones((2, 1))
    return {"switching-network": curves(random, "amplitude", [0.3, 0.6], logs, runs=runs)}


def trend(name: str, axis: str):
    def make(random, slope: float, runs: int = RUNS) -> Data:
        levels = np.arange(1.0, 6.0)
        height = 10 * DIVERGES * (1 + slope * (levels - 3))
        rates = np.where(BAND, 1.0, 0.0) * height[:, None]
        return {name: curves(random, axis, levels, rates=rates, runs=runs)}

    return make


variance = trend("switching-variance", "amplitude")
dimension = trend("switching-dimension", "dim")


def widened(random, change: float, runs: int = RUNS, moved: float | None = None) -> Data:
    """Return maps whose region has an area for one sample and another for twenty."""
    at = None if moved is None else 0.3
    return {
        "single-sample": both(random, (0.3 + change,) * 3, runs=runs, columns=moved, spread=0.005),
        "smaller-step": both(random, (0.3,) * 3, runs=runs, columns=at, spread=0.005),
    }


def exponents(random, fall: float) -> xr.Dataset:
    """Return almost-sure rates whose excess over shuffled inputs is smaller by ``fall``."""
    shape = (len(LR), 2, len(RESONANT))
    excess = np.broadcast_to(np.array([0.02 - fall, 0.02])[:, None], shape)
    noise = 1e-4 * random.normal(size=shape)
    rates = {"exponent": -0.01 + excess + noise, "shuffled_exponent": np.full(shape, -0.01)}
    return xr.Dataset(
        {
            f"{name}{end}": (("lr", "batch", "place"), array + off)
            for name, array in rates.items()
            for end, off in (("", 0.0), ("_low", -3e-4), ("_high", 3e-4))
        },
        {"lr": np.array(LR), "batch": [1, 20], "place": list(RESONANT)},
    )


def damped(random, slope: float, fall: float, runs: int = RUNS) -> Data:
    """Return Fig. 3 with an excess that rises with the samples, and rates for its maps."""
    logs = np.where(BAND, 3.0, 0.0) * (1 + slope * np.arange(-2.0, 3.0)[:, None])
    logs = logs + np.linspace(1.0, 0.0, 5)[:, None]  # noise raises all, shuffled inputs too
    fig = curves(random, "batch", np.arange(1.0, 6.0), logs=logs, runs=runs)
    return {"square-samples": fig, "theory-maps": exponents(random, fall)}


def norms(random, *centres: tuple[list[int], list[int]], runs: int = RUNS) -> Data:
    """Return Fig. 3 with exact peaks for both norms, for 1, 2, ... samples."""
    dataset = tongues(random, [[12]] * len(centres), runs)
    parts = []
    for number, name in enumerate(NORMS):
        heights = [
            sum(np.exp(-((PERIODS - at) ** 2) / 2) for at in each[number]) for each in centres
        ]
        exact = ("panel", "batch", "period"), np.array(heights, float)[None]
        parts.append(dataset.assign_coords(panel=[name]).assign(predicted_log_distance=exact))
    both_norms = xr.concat(parts, "panel")
    panels = [(name, "square", 0.01) for name in NORMS]
    return {"square-samples": both_norms.assign_attrs(specification(panels))}


THREE, TWO = [6, 20, 40], [6, 20]


def square(random, *bands, runs: int = RUNS) -> Data:
    """Return Fig. 3 with bands for 1, 2, ... samples."""
    return {"square-samples": tongues(random, bands, runs)}


def contour(random, line: float | None = None, runs: int = RUNS, spread: float = 0.02) -> Data:
    return {
        f"{kind}-map": maps(random, {("all", kind, 0.01): 0.3}, runs=runs, line=line, spread=spread)
        for kind in ("sinusoid", "ar2")
    }


def unlike(data: Data) -> Data:
    """Return maps whose exact update converges in more cells than the flow."""
    return {name: one.assign(map_rate=one.flow_rate - 0.1) for name, one in data.items()}


def step_size(random, areas=(0.5, 0.3, 0.1), runs: int = RUNS, spread: float = 0.02) -> Data:
    return {"smaller-step": both(random, areas, runs=runs, spread=spread)}


HOLDS = {
    "contour-separates": lambda random: contour(random),
    "own-boundary": lambda random: contour(random),
    "low-momentum-mitigates": lambda random: everywhere(random, 0.8),
    "step-size-shrinks": lambda random: step_size(random),
    "flow-implies-sgdm": lambda random: contour(random),
    "samples-damp": lambda random: damped(random, 0.2, 0.01),
    "samples-widen": lambda random: widened(random, 0.1),
    "single-sample-shape": lambda random: widened(random, 0.1, moved=0.3),
    "three-peaks": lambda random: norms(random, (THREE, THREE), (THREE, THREE)),
    "right-shift": lambda random: square(random, [30], [20], [12]),
    "variance-excites": lambda random: variance(random, 0.2),
    "dimension-excites": lambda random: dimension(random, 0.2),
    "adam-bounded": lambda random: adam(random, 2.0, order=1.0),
    "adam-level": lambda random: adam_level(random, 1.1),
    "network-band": lambda random: network(random, 1.5),
    "best-momentum": lambda _: {"theory-maps": best(lambda period: 0.8 + 0 * period)},
}
FAILS = {
    "contour-separates": lambda random: contour(random, line=0.2),
    "own-boundary": lambda random: contour(random, line=0.2),
    "low-momentum-mitigates": lambda random: low_momentum(random, 1.5),
    "step-size-shrinks": lambda random: step_size(random, (0.3, 0.4, 0.1)),
    "flow-implies-sgdm": lambda random: unlike(contour(random)),
    "samples-damp": lambda random: damped(random, -0.2, -0.01),
    "samples-widen": lambda random: widened(random, -0.1),
    "single-sample-shape": lambda random: widened(random, 0.1, moved=0.7),
    "three-peaks": lambda random: norms(random, (TWO, TWO), (THREE, THREE)),
    "right-shift": lambda random: square(random, [12], [20], [30]),
    "variance-excites": lambda random: variance(random, -0.2),
    "dimension-excites": lambda random: dimension(random, -0.2),
    "adam-bounded": lambda random: adam(random, 2.0, order=1.0, growth=10 * DIVERGES),
    "adam-level": lambda random: adam_level(random, 1.6, every=9),
    "network-band": lambda random: network(random, 0.7),
    "best-momentum": lambda _: {"theory-maps": best(lambda period: 0.6 + period / 2000)},
}


RECORDS = catalogue()


def outcome(data: Data, name: str) -> bool | None:
    return judge_of(name)(data).holds


@cache
def judge_of(name: str) -> Callable[[Data], Claim]:
    """Return the judge of one claim: where many data are judged, the others would cost time."""
    data = HOLDS[name](np.random.default_rng(0))
    judges = [
        one.function
        for record in RECORDS
        for one in record.judges
        if all(each in data for each in (record.id, *one.also))
    ]
    for function in judges:
        with suppress(KeyError):  # another judge of the same figure needs more of it
            if function(data).id == name:
                return function
    raise AssertionError(f"no judge of {name}")


@pytest.mark.parametrize("name", HOLDS)
def test_each_judge_from_both_sides(name):
    random = np.random.default_rng(5)
    assert outcome(HOLDS[name](random), name) is True
    assert outcome(FAILS[name](random), name) is False


MORE = {  # other ways of not holding
    "adam without a band": ("adam-bounded", lambda random: adam(random, 0.5, order=1.0)),
    "adam, smaller beta1 worse": ("adam-bounded", lambda random: adam(random, 9.0, order=-0.4)),
    "no rise of the momentum": (
        "best-momentum",
        lambda _: {"theory-maps": best(lambda period: 0.8 + 0 * period, rise=-0.01)},
    ),
    "levels too low": ("adam-level", lambda random: adam_level(random, 0.5, every=9)),
    "levels missing": ("adam-level", lambda random: adam_level(random, np.nan, every=9)),
    "damped in Fig. 3 alone": ("samples-damp", lambda random: damped(random, 0.2, -0.01)),
    "damped in the maps alone": ("samples-damp", lambda random: damped(random, -0.2, 0.01)),
    "a line too far out": ("contour-separates", lambda random: contour(random, line=-0.2)),
}


@pytest.mark.parametrize("case", MORE)
def test_every_part_of_a_claim_can_fail(case):
    name, make = MORE[case]
    assert outcome(make(np.random.default_rng(6)), name) is False


FEW = {
    "low-momentum-mitigates": lambda random: low_momentum(random, 1.5, runs=3),
    "adam-bounded": lambda random: adam(random, 2.0, order=1.0, runs=2),
    "adam-level": lambda random: adam_level(random, 1.0, runs=2),
    "network-band": lambda random: network(random, 1.05, runs=2),
    "variance-excites": lambda random: variance(random, 0.01, runs=2),
    "samples-damp": lambda random: damped(random, 0.01, 0.01, runs=2),
    "samples-widen": lambda random: widened(random, 0.01, runs=2),
    "single-sample-shape": lambda random: widened(random, 0.0, runs=1),
    "contour-separates": lambda random: contour(random, runs=2, spread=0.3),
    "step-size-shrinks": lambda random: step_size(random, (0.5, 0.45, 0.4), runs=2, spread=0.3),
}


@pytest.mark.parametrize("name", FEW)
def test_too_few_runs_decide_nothing(name):
    assert outcome(FEW[name](np.random.default_rng(7)), name) is None


# Truth at the border of each claim: neither word may come more often than the significance allows.
NULL = {
    "no period responds": ("low-momentum-mitigates", lambda random: everywhere(random, 1.0)),
    "all at the limit": ("low-momentum-mitigates", lambda random: everywhere(random, 1.1)),
    "Adam sees no rhythm": ("adam-bounded", lambda random: adam(random)),
    "levels at the upper limit": ("adam-level", lambda random: adam_level(random, 1.3)),
    "levels at the lower limit": ("adam-level", lambda random: adam_level(random, 0.7)),
    "some levels at the limit": ("adam-level", lambda random: adam_level(random, 0.7, every=17)),
    "no band of a network": ("network-band", lambda random: network(random, 1.0)),
    "no trend in v": ("variance-excites", lambda random: variance(random, 0.0)),
    "no trend in d": ("dimension-excites", lambda random: dimension(random, 0.0)),
    "the same excess": ("samples-damp", lambda random: damped(random, 0.0, 0.01)),
    "the same rates": ("samples-damp", lambda random: damped(random, 0.2, 0.0)),
    "the same areas": ("samples-widen", lambda random: widened(random, 0.0)),
    "the same regions": ("single-sample-shape", lambda random: widened(random, 0.0, moved=0.3)),
    "both of three peaks": ("three-peaks", lambda random: norms(random, (THREE, THREE))),
    "no move": ("right-shift", lambda random: square(random, [12], [12], [12])),
    "equal areas": ("step-size-shrinks", lambda random: step_size(random, (0.3, 0.3, 0.3))),
    "an exact line": ("contour-separates", lambda random: contour(random)),
    "its own line": ("own-boundary", lambda random: contour(random)),
}
TRUE_UNDER = {
    "no period responds",
    "both of three peaks",
    "the same regions",
    "an exact line",
    "its own line",
}
FALSE_UNDER = {
    "Adam sees no rhythm",
    "the same excess",
    "the same rates",
    "the same areas",
    "no move",
    "equal areas",
}


@pytest.mark.parametrize("case", NULL)
def test_judges_keep_their_significance(case):
    name, make = NULL[case]
    random, count = np.random.default_rng(8), 24
    found = [judge_of(name)(make(random)).holds for _ in range(count)]
    most = binom.isf(1e-3, count, SIGNIFICANCE)
    if case not in TRUE_UNDER:
        assert found.count(True) <= most
    if case not in FALSE_UNDER:
        assert found.count(False) <= most


def spectra(random: np.random.Generator, parts: int, each: int, shift: float = 0.0) -> Data:
    """Return densities as `compute_spectra` has them, drawn bin by bin from their closed forms.

    Each is the mean over so many paths: of the squared length of complex normal numbers, where the
    mean is random, and around it of such numbers again. ``shift`` moves what is said of the places
    by so many bins.
    """
    frequency = np.arange(601) / 1200
    shape = (parts, len(frequency))
    rows = []
    for panel in SIGNALS:
        name, period = panel.process.name, panel.period
        half = panel.process.variance / 2 / each  # of real and imaginary parts
        if name == "switching":
            mean = np.sinc(frequency * period) ** 2 + 1e-4
        else:  # lines, or a peak of some width
            width = 1e-3 if name == "ar2" else 2e-4
            odd = (1, 3, 5, 7) if name == "square" else (1,)
            mean = sum(30 / n**2 / (1 + ((frequency - n / period) / width) ** 2) for n in odd)
        drawn = random.standard_gamma(each, shape) / each  # half a chi-square
        means = mean * (drawn if name in ("ar2", "switching") else np.ones(shape))
        rows.append([half * random.noncentral_chisquare(2 * each, means / half), means])
    density = np.array(rows).transpose(2, 0, 1, 3)  # part, panel, series, frequency
    periods = np.array([panel.period for panel in SIGNALS])
    dataset = xr.Dataset(
        {"part_density": (("part", "panel", "series", "frequency"), density)},
        {
            "panel": [panel.name for panel in SIGNALS],
            "series": ["input", "mean"],
            "frequency": frequency,
            "process": ("panel", [panel.process.name for panel in SIGNALS]),
            "period": ("panel", 1 / (1 / periods + shift / 1200)),
        },
    )
    return {"spectra": dataset}


def test_the_judge_of_spectra_from_both_sides_and_under_the_null():
    random = np.random.default_rng(12)
    assert judge_spectral_peaks(spectra(random, 10, 640)).holds is True  # fewer leave some open
    assert judge_spectral_peaks(spectra(random, 10, 80, shift=2.0)).holds is False
    few = [judge_spectral_peaks(spectra(random, 10, 3)).holds for _ in range(8)]
    assert few.count(False) <= binom.isf(1e-3, 8, SIGNIFICANCE)
    assert None in few


@pytest.fixture(scope="module")
def densities() -> xr.Dataset:
    return spectra(np.random.default_rng(13), 10, 80)["spectra"]


@pytest.mark.parametrize(
    "panel", ["sinusoid f=0.01", "ar2 f=0.03", "square T=150", "switching T=30"]
)
@pytest.mark.parametrize("bins", [-2, 2])
def test_one_density_off_its_place_fails_and_is_named(panel, bins, densities):
    dataset = densities.copy(deep=True)
    density = dataset.part_density.sel(panel=panel).values
    dataset.part_density.loc[{"panel": panel}] = np.roll(density, bins, axis=-1)
    found = judge_spectral_peaks({"spectra": dataset})
    assert found.holds is False
    assert found.worst.case == panel
    assert all(case.case.startswith(panel) for case in found.cases if case.holds is False)


def test_a_missing_harmonic_and_a_peak_off_zero_fail(densities):
    smooth, bumped = (densities.copy(deep=True) for _ in range(2))
    frequency = densities.frequency.values
    smooth.part_density.loc[{"panel": "square T=50"}] = 1 / (1 + np.abs(frequency - 0.02))
    assert judge_spectral_peaks({"spectra": smooth}).holds is False
    bumped.part_density.loc[{"panel": "switching T=10"}] += 6 * np.exp(
        -(((frequency - 0.15) / 0.01) ** 2)
    )
    found = judge_spectral_peaks({"spectra": bumped})
    assert any("off zero" in case.case for case in found.cases if case.holds is False)


def gradients(random: np.random.Generator, bias: float = 0.0, move: float = 9.0) -> Data:
    """Return drawn gradients whose means are off what is expected by some standard errors."""
    shape = (4, 3, 3, 6)
    expected = np.cumsum(np.full(shape, move), axis=1)
    expected[:, :, 0] = 0.0
    dims = ("process", "moment", "point", "weight")
    dataset = xr.Dataset(
        {
            "gradient_mean": (dims, expected + random.normal(size=shape) + bias),
            "gradient_error": (dims, np.ones(shape)),
            "gradient_expected": (dims, expected),
        },
        {"weight": np.arange(6), "weights": ("process", [6, 6, 6, 6])},
    )
    return {"propositions": dataset}


def test_the_judge_of_gradients_from_both_sides_and_under_the_null():
    random = np.random.default_rng(11)
    found = [judge_gradient(gradients(random)) for _ in range(100)]
    significance = found[0].significance
    assert [claim.holds for claim in found].count(False) <= binom.isf(1e-3, 100, significance)
    assert judge_gradient(gradients(random, bias=5.0)).holds is False
    assert judge_gradient(gradients(random, move=0.0)).holds is False


def test_one_wrong_gradient_is_enough_to_fail():
    made = gradients(np.random.default_rng(15))["propositions"]
    assert judge_gradient({"propositions": made}).holds is True
    one = made.copy(deep=True)
    one.gradient_expected[2, 1, 1, 4] += 9 * one.gradient_error[2, 1, 1, 4]
    halved = made.assign(gradient_expected=made.gradient_expected / 2)
    still = made.isel(moment=[0, 0, 0])  # a matrix that does not move contradicts it as well
    for wrong in (one, halved, still):
        assert judge_gradient({"propositions": wrong}).holds is False


def growth(off: float, sign: float = 1.0) -> Data:
    """Return exact growth by radii that are told wrongly by a factor."""
    radius = np.array([[0.05, 0.3, -0.2, -0.5]] * 2)
    log_size = radius[:, :, None, None] * np.arange(201.0) * np.ones((1, 1, 2, 1))
    dataset = xr.Dataset(
        {
            "log_size": (("dynamics", "setting", "start", "turn"), log_size),
            "log_radius": (("dynamics", "setting"), sign * (1 + off) * radius),
        },
        {"dynamics": ["flow", "map"], "setting": list("abcd")},
    )
    return {"propositions": dataset}


def order(power: float = 1.0, rounding: float = 1e-15) -> Data:
    lr = 0.01 / 4.0 ** np.arange(5)
    error = np.array([lr, lr])
    dataset = xr.Dataset(
        {
            "global_error": (("problem", "lr"), error ** (power / 2)),
            "local_error": (("problem", "lr"), error**power),
            "local_error_fixed_momentum": (("problem", "lr"), error**0.5),
            "rounding": (("problem", "pair"), np.full((2, 2), rounding)),
        },
        {"lr": lr, "pair": ["one", "other"]},
    )
    return {"propositions": dataset}


def test_the_judges_without_chance_from_both_sides():
    assert judge_floquet(growth(0.001)).holds is True
    assert judge_floquet(growth(0.05)).holds is False
    assert judge_floquet(growth(0.0, sign=-1.0)).holds is False
    made = growth(0.001)["propositions"]
    off = made.assign(log_radius=made.log_radius + 0.01)
    assert judge_floquet({"propositions": off}).holds is False
    assert judge_floquet({"propositions": made.isel(setting=[0, 1])}).holds is False  # all grow
    assert judge_order(order()).holds is True
    assert judge_order(order(power=2.0)).holds is False
    assert judge_order(order(rounding=1e-6)).holds is False
    made = order()["propositions"]
    for name in ("global_error", "local_error"):
        for power in (-0.25, 0.25):
            bent = made.assign({name: made[name] * made.lr**power})
            assert judge_order({"propositions": bent}).holds is False
    assert judge_order(order(rounding=np.nan)).holds is None


def solutions(stable: float) -> Data:
    """Return exact growth, and the growth per period in the stable directions."""
    made = growth(0.001)["propositions"]
    path = np.arange(5.0) * stable * np.ones((4, 1))
    return {"propositions": made.assign(stable_log_size=(("setting", "stable_turn"), path))}


def test_the_judge_of_all_other_solutions_from_both_sides():
    assert judge_all_solutions(solutions(0.2)).holds is True
    found = judge_all_solutions(solutions(-0.2))
    assert found.holds is False
    assert [case.case for case in found.cases if case.decides] == [  # only where the radius is > 1
        "a, stable directions",
        "b, stable directions",
    ]


def test_solutions_in_stable_directions_decay_by_the_multipliers_below_one():
    """Against the multipliers of scipy's monodromy matrix, and random starts that diverge."""
    drive = Drive(np.array([False]), np.array([1.0]), np.array([22.0]), np.array([0.97]), 0.01)
    start = np.random.default_rng(3).normal(size=(2, 2))
    inside = stable_sizes(drive, start, 4)[0]
    time, friction = 2.2, 0.3

    def slope(at, state):
        matrix = curvature(0.5 * np.sin(2 * np.pi * at / time))
        return np.concatenate([state[2:], -matrix @ state[:2] - friction * state[2:]])

    columns = [
        solve_ivp(slope, (0, time), one, rtol=1e-10, atol=1e-12).y[:, -1] for one in np.eye(4)
    ]
    sizes = np.abs(np.linalg.eigvals(np.array(columns).T))
    assert sizes.max() > 1
    assert np.prod(sizes) == pytest.approx(np.exp(-2 * friction * time))
    assert np.diff(inside).max() < np.log(sizes[sizes < 1].max()) + 0.6  # it swings on its way
    assert inside[-1] - inside[0] < 0
    assert flow_sizes(drive, start[None], 60)[0, 0, -1] > 0


def test_peaks_are_counted_by_how_far_they_rise():
    curve = [0, 1, 0, 5, 4.9, 5, 2, 2.3, 1, 1, 3]
    assert [count_peaks(curve, rise) for rise in (0.05, 0.2, 0.5, 2, 6)] == [4, 3, 2, 1, 0]
    assert count_peaks(curve[::-1], 0.5) == 2  # a peak at an end is none
    assert count_peaks([], 1.0) == 0


def test_the_interval_of_the_share_of_plotted_cells_keeps_its_significance():
    """Maps of runs that grow or fall exponentially: a cell is ruled by its luckiest run.

    The share of cells above 1 is near the limits of contour-separates, from both sides.
    """
    random, count = np.random.default_rng(14), 100

    def draw(shift: float) -> np.ndarray:
        shared = random.normal(size=(1, 100, 10))  # along a column of a map
        return 20 * (0.5 * random.normal(size=(4, 100, 10)) + shared + shift)

    for shift in (-2.75, -0.6):
        truth = np.mean([np.mean(log_mean_response(draw(shift)) > 0) for _ in range(300)])
        ends = [jackknife(_bright_share, draw(shift), SIGNIFICANCE / 4).exp() for _ in range(count)]
        most = binom.isf(1e-3, count, SIGNIFICANCE)
        assert sum(one.low > truth for one in ends) <= most
        assert sum(one.high < truth for one in ends) <= most


@pytest.mark.slow
def test_the_exact_distance_of_fig_3_is_what_is_simulated():
    """The prediction by which peaks are counted, against runs; also where they diverge."""
    (record,) = catalogue(("square-samples",))
    points = record.layout.coords
    batch, period = list(points["batch"]).index(2.0), list(points["period"])
    cells = [period.index(value) for value in (8.0, 18.0, 60.0)]
    part = record.also[-1]
    found = [
        part(
            {"panel": slice(0, 1), "batch": slice(batch, batch + 1), "period": slice(at, at + 1)},
            0,
            False,
            lambda _: None,
        )["predicted_log_distance"].item()
        for at in cells
    ]
    training = Training(
        Square(period=8.0, variance=0.25, dim=5),
        heavy_ball(0.01, 0.95),
        batch=2,
        noise=0.1,
        reduction="sum",
        start=0.25,
        start_law="normal",
    )
    runs = simulate(training, {"period": np.array([8.0, 60.0])}, runs=64, steps=2000, window=400)
    seen = summarise(runs)["log_response"].ravel()
    assert found[0] == pytest.approx(seen[0], abs=0.15)
    assert found[2] == pytest.approx(seen[1], abs=0.15)
    assert found[1] > 5  # diverges


def test_the_fastest_momentum_is_that_of_every_momentum():
    """The rate has several minima; the search is against integrating at each momentum."""
    setting = Setting(Sinusoid(period=100.0), heavy_ball(0.01, 0.9), batch=20)
    momentum, period = np.linspace(0.0, 0.999, 30), np.array([100.0])
    rate = stability_map(setting, "flow", momentum=momentum, period=period).rate.values
    (found,) = _best_momentum(setting, momentum, period, rate)
    every = np.arange(0.6, 0.9, BEST_STEP)
    for step in (20, 1):  # all, and then all around the least of these
        tried = every[::step]
        values = {"momentum": tried, "period": np.full(len(tried), 100.0)}
        direct = tried[rates(setting, values, "flow").argmin()]
        every = every[np.abs(every - direct) < 25 * BEST_STEP]
    assert found == pytest.approx(direct, abs=BEST_STEP)


def test_the_small_scale_stays_within_the_papers_ranges():
    for small, large in zip(RECORDS, catalogue(scale="paper"), strict=True):
        if not small.runs:
            continue
        for name in set(small.layout.coords) - {"panel", "run"}:
            one, other = small.layout.coords[name], large.layout.coords[name]
            assert set(one) <= set(other) or name in ("momentum", "period"), (small.id, name)
            assert other.min() <= one.min() <= one.max() <= other.max(), (small.id, name)
    by_id = {item.id: item for item in RECORDS}
    for name in ("square-samples", "lower-momentum", "switching-variance", "switching-dimension"):
        assert {0, 12, 27} <= set(by_id[name].layout.coords["period"]), name
    for name in (
        "sinusoid-map",
        "ar2-map",
        "switching-variance",
        "switching-adam",
        "lower-momentum",
    ):
        assert by_id[name].deviations


def test_a_claim_may_depend_on_the_reading():
    def claim(first: float, second: float, interval=None) -> Claim:
        cases = (
            Case("table", first, ">=", 3.0, reading="table"),
            Case("text", second, ">=", 3.0, reading="text", interval=interval),
            Case("shown", 0.0, ">=", 3.0, decides=False),
        )
        return Claim("x", "says", "what", "why", cases, significance=0.0)

    found = claim(2, 3)
    assert (found.outcome, found.holds) == ("depends on the reading", None)
    assert found.readings == {"table": False, "text": True}
    assert found.worst.case == "table"
    assert claim(3, 3).outcome == "holds"
    assert claim(2, 2).outcome == "does not hold"
    assert claim(3, 3, (2, 4)).outcome == claim(2, 3, (2, 4)).outcome == "not decided"
    plain = found.to_dict()
    assert plain["readings"] == {"table": "does not hold", "text": "holds"}
    (stored,) = plain_claims([found], scale="smoke", seed=0)
    assert "**depends on the reading**; table: does not hold; text: holds" in claims_table([stored])


def test_each_norm_has_its_own_outcome():
    found = judge_of("three-peaks")(norms(np.random.default_rng(5), (TWO, THREE), (THREE, THREE)))
    assert found.outcome == "depends on the reading"
    assert list(found.readings.values()) == [False, True]


def test_three_outcomes():
    def claim(*cases: Case) -> Claim:
        return Claim("x", "says", "what", "why", cases, significance=0.01)

    yes = Case("yes", 1.0, ">=", 0.5, interval=(0.6, 1.2))
    maybe = Case("maybe", 0.6, ">=", 0.5, interval=(0.4, 0.8))
    no = Case("no", 0.2, ">=", 0.5, interval=(0.1, 0.3))
    shown = Case("shown", 0.2, ">=", 0.5, decides=False)
    assert claim(yes, shown).holds is True
    assert claim(yes, maybe).holds is None
    assert claim(maybe, yes, no).holds is False
    assert claim(yes, maybe).worst is maybe
    assert claim(maybe, yes, no).worst is no
    assert claim(yes, Case("lost", np.nan, "<", 2.0)).holds is None
    table = claim(yes, maybe).to_dict()
    assert (table["holds"], table["outcome"], table["significance"]) == (None, "not decided", 0.01)
    assert table["interval"] == [0.4, 0.8]
    counted = [Case("n", 3.0, "==", 3.0, interval=ends).holds for ends in ((3, 3), (2, 3), (4, 5))]
    assert counted == [True, None, False]
