"""The bounds beside a criterion that is computed at some cells only and interpolated."""

from __future__ import annotations

import numpy as np
import pytest

from resonax.spec.sweep_checks import parse_sweep
from resonax.sweeps.sweep import sweep_layout
from resonax.sweeps.theory import theory_rates

SWEEP = {
    "id": "tiny",
    "process": {"kind": "sinusoid", "amplitude": 0.5, "variance": 1.0},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    "train": {"batch": 20},
    "run": {"runs": 2, "steps": 40, "window": 20},
    "axes": {
        "momentum": {"first": 0.95, "last": 0.99, "count": 9},
        "period": {"first": 20, "last": 40, "count": 11, "spacing": "inverse"},
    },
}


def theory(points: list[int]) -> dict[str, np.ndarray]:
    table = {**SWEEP, "theory": {"criteria": ["mean_square"], "points": points}}
    return theory_rates(parse_sweep(table), 0, "mean_square", range(11))


def test_bounds_of_an_interpolated_criterion_are_those_of_the_points_around():
    exact, coarse = theory([9, 11])["rate"], theory([3, 3])
    rows, columns = np.arange(0, 9, 4), np.arange(0, 11, 5)
    for name in coarse:  # a computed point has its own value
        np.testing.assert_allclose(coarse[name][np.ix_(rows, columns)], exact[::4, ::5], atol=1e-12)
    block = exact[np.ix_([4, 8], [0, 5])]  # the points around any cell between these
    # Another shape is another compiled program: the last bits may differ, no more.
    assert coarse["low"][6, 3] == pytest.approx(block.min(), abs=1e-12)
    assert coarse["high"][6, 3] == pytest.approx(block.max(), abs=1e-12)
    assert (coarse["low"] <= coarse["rate"] + 1e-12).all()
    assert (coarse["rate"] <= coarse["high"] + 1e-12).all()
    crossed = (coarse["low"] < 0) & (coarse["high"] > 0)
    assert 0 < crossed.sum() < crossed.size


@pytest.mark.parametrize(
    ("criterion", "parts"),
    [("flow", [range(5)]), ("mean_square", [range(4, 6), range(3, 7), range(10, 11)])],
)
def test_theory_of_a_part_of_a_panel_is_that_of_the_whole(criterion, parts):
    """Also where a part lies between two computed points, ends at one, or is one column."""
    sweep = parse_sweep({**SWEEP, "theory": {"criteria": [criterion], "points": [4, 4]}})
    whole = theory_rates(sweep, 0, criterion, range(11))
    for part in parts:
        for name, found in theory_rates(sweep, 0, criterion, part).items():
            np.testing.assert_allclose(found, whole[name][:, part], rtol=0, atol=1e-10)


def test_a_large_panel_with_theory_is_cut_into_tasks():
    axes = {
        "momentum": {"first": 0.95, "last": 0.99, "count": 1000},
        "period": {"first": 20, "last": 40, "count": 1000},
    }
    table = {**SWEEP, "theory": {"criteria": ["flow"]}}
    assert sweep_layout(parse_sweep(table)).count() == 1
    sweep = parse_sweep({**table, "axes": axes})
    assert sweep_layout(sweep).count() == 10
