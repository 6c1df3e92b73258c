"""A cell that cannot be computed is a missing value with its reason, not the end of a map."""

from __future__ import annotations

import io
import math
import sys

import numpy as np
import pytest
from rich.console import Console

import resonax as rx
from resonax.cli.show import show_map
from resonax.theory import Interval, flow, search
from resonax.theory.period import REASONS, Product

VERDICT = sys.modules["resonax.theory.verdict"]  # the function has the name of its module

SETTING = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr=0.01, momentum=0.97))
AMPLITUDES = [0.5, 1.0, 1e6]  # the last one is too much for the flow


@pytest.fixture(scope="module")
def holed():
    return rx.stability_map(SETTING, "flow", momentum=[0.9, 0.99], amplitude=AMPLITUDES)


@pytest.fixture(scope="module")
def whole():
    return rx.stability_map(SETTING, "flow", momentum=[0.9, 0.99], amplitude=AMPLITUDES[:2])


def printed(dataset) -> str:
    stream = io.StringIO()
    show_map(dataset, [], Console(file=stream, width=500))
    return stream.getvalue()


def legends(figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_a_stiff_cell_is_missing_with_its_reason_and_the_others_are_there(holed, whole):
    np.testing.assert_array_equal(holed.rate.values[:, :2], whole.rate.values)
    assert np.isnan(holed.rate.values[:, 2]).all()
    assert holed.missing.values.tolist() == [[0, 0, 1], [0, 0, 1]]
    assert holed.missing.attrs["flag_meanings"].split()[1] == "too_stiff"
    assert holed.resonax.reasons() == {REASONS["too_stiff"]: 2}
    assert "missing=2" in repr(holed.resonax)


def test_the_figure_and_the_command_tell_of_it(holed):
    figure = holed.resonax.plot()
    assert figure.axes[0].patch.get_hatch()
    assert "not computed: the flow is too stiff to be integrated" in legends(figure)
    words = printed(holed)
    assert "2 of 6 cells could not be computed: the flow is too stiff" in words
    assert " of 4 cells diverge" in words


def test_a_whole_map_tells_of_nothing(whole):
    assert not whole.missing.any()
    assert whole.resonax.reasons() == {}
    figure = whole.resonax.plot()
    assert not figure.axes[0].patch.get_hatch()
    assert not any("not computed" in words for words in legends(figure))
    assert "could not be computed" not in printed(whole)
    assert "missing" not in repr(whole.resonax)


def test_a_map_of_nothing_can_be_drawn_and_told():
    none = rx.stability_map(SETTING, "flow", momentum=[0.9, 0.99], amplitude=[9e5, 1e6])
    assert np.isnan(none.rate).all()
    none.resonax.plot()
    assert printed(none).startswith("4 of 4 cells could not be computed")


def test_an_integration_that_fails_takes_its_own_cell_alone(monkeypatch, whole):
    real = flow.flow_monodromy

    def failing(setting, values, counts):
        matrix, exponent = real(setting, values, counts)
        matrix[np.asarray(values["amplitude"]) == 1.0] = np.nan
        return Product(matrix, exponent)

    monkeypatch.setattr(flow, "flow_monodromy", failing)
    found = rx.stability_map(SETTING, "flow", momentum=[0.9, 0.99], amplitude=AMPLITUDES[:2])
    assert found.missing.values.tolist() == [[0, 2], [0, 2]]
    np.testing.assert_allclose(found.rate.values[:, 0], whole.rate.values[:, 0], rtol=1e-7)
    assert list(found.resonax.reasons()) == [REASONS["not_integrated"]]


def test_a_verdict_keeps_the_reason_as_a_note(monkeypatch):
    monkeypatch.setattr(VERDICT, "lyapunov", lambda *_, **__: Interval(-0.1, -0.2, -0.05))
    monkeypatch.setattr(VERDICT, "noise_floor", lambda _: None)
    known = {"flow": math.nan, "map": -0.1, "mean_square": -0.1}
    monkeypatch.setattr(VERDICT, "rates", lambda *given: np.array([known[given[2]]]))
    huge = rx.Setting(rx.Sinusoid(period=22, amplitude=1e6), rx.heavy_ball(lr=1e6, momentum=0.9))
    found = rx.verdict(huge)
    assert found.flow is None
    assert found.map is not None
    assert found.notes == (f"flow: {REASONS['too_stiff']}",)
    assert found.to_dict()["notes"] == list(found.notes)


def test_searches_do_not_guess_past_what_is_missing(monkeypatch):
    def rates(known):
        return lambda *_: np.array(known)

    grid = np.array([0.1, 0.2, 0.3])
    monkeypatch.setattr(search, "why_missing", lambda *given: "no" * int(np.isnan(given[3]).any()))
    for known in ([-1.0, math.nan, 1.0], [-1.0, -1.0, math.nan]):
        monkeypatch.setattr(search, "rates", rates(known))
        with pytest.raises(rx.ArgumentError, match="no"):
            search._first_crossing(SETTING, "momentum", grid, "flow")
    monkeypatch.setattr(search, "rates", rates([1.0, math.nan, math.nan]))
    assert search._first_crossing(SETTING, "momentum", grid, "flow") == 0.1
