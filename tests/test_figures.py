"""Figures: ticks that say something, colours for dark pages, escaped names, notebooks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.contour import ContourSet
from matplotlib.text import Text

from resonax.figures import darken, plot_map, plot_sweep
from resonax.figures.dark import PAPER, contrast
from resonax.figures.style import new_figure, png_of, save_figure
from resonax.figures.ticks import exponent_axis, log_axis, round_exponents

HOSTILE = "[red]$\\frac{$ \x00\x1b[31m\u202e <b>日本</b> $" + "x" * 5000


def labels(axis) -> list[str]:
    return axis.get_major_formatter().format_ticks(axis.get_majorticklocs())


@pytest.fixture(scope="module")
def axes() -> Axes:
    """Axes whose limits many tests set."""
    return new_figure(4, 3).add_subplot()


@pytest.mark.parametrize("low", [-300.0, -2.3, -0.02, 0.0, 0.31, 6.7, 250.0, 4000.0])
@pytest.mark.parametrize("span", [0.04, 0.3, 0.9, 1.5, 3.0, 8.0, 45.0, 900.0])
def test_ticks_are_few_distinct_and_inside(axes, low, span):
    axes.set_ylim(low, low + span)
    exponent_axis(axes.yaxis)
    places, words = axes.yaxis.get_majorticklocs(), labels(axes.yaxis)
    assert len(set(words)) == len(words)
    assert all(low - 1e-6 <= place <= low + span + 1e-6 for place in places)
    assert len(words) <= 10
    assert len(words) >= 2 or abs(low) > 290


def test_a_logarithmic_axis_below_one_decade_names_its_numbers():
    axes = new_figure(4, 3).add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(0.4, 2.6)
    log_axis(axes.xaxis)
    assert labels(axes.xaxis) == ["0.5", "1", "2"]


@given(st.floats(-290, 290), st.floats(1e-3, 400))
def test_ticks_are_round_numbers(low, span):
    for exponent in round_exponents(low, min(low + span, 299.0)):
        mantissa = 10 ** (exponent % 1)
        assert f"{mantissa:.6g}" == f"{mantissa:.9g}"


def sweep(first: str, count: int, title: str, panels: list[str]) -> xr.Dataset:
    """Make what a sweep stores, over two axes."""
    rng = np.random.default_rng(0)
    values, period = np.linspace(0.9, 0.99, count), np.arange(0.0, 8.0)
    runs = rng.normal(size=(len(panels), count, len(period), 4))
    runs[0, 0, 3, 1] = np.inf
    dims = ("panel", first, "period")
    data = {
        "log_response": (dims, runs.mean(axis=-1)),
        "run_log_response": ((*dims, "run"), runs),
        "rate": (dims, runs[..., 0]),
    }
    part = {"process": {"kind": "square"}, "model": {}, "optimizer": {}}
    panel = {"process": {}, "model": {}, "optimizer": {}, "limits": {}}
    record = {**part, "panels": [{**panel, "name": name} for name in panels]}
    attributes = {"title": title, "specification": json.dumps(record)}
    return xr.Dataset(data, {"panel": panels, first: values, "period": period}, attributes)


@pytest.mark.parametrize("count", [3, 14])
def test_foreign_names_are_shown_as_text(count, tmp_path):
    dataset = sweep("momentum", count, HOSTILE, [HOSTILE, "clear"])
    figure = plot_sweep(dataset)
    for ending in ("svg", "png", "pdf")[: 3 if count == 3 else 1]:  # the words are the same
        save_figure(figure, tmp_path / f"figure.{ending}")
        figure.set_layout_engine("none")  # everything has its place
    words = [text.get_text() for text in figure.findobj(Text)]
    assert max(map(len, words)) < 200
    assert not any(letter in word for word in words for letter in "\x00\x1b\u202e")
    assert sum(r"\x1b[31m\u202e <b>日本</b>" in word for word in words) == 2
    assert "clear" in words
    svg = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "<b>" not in svg
    assert "<dc:date>" not in svg


def test_a_legend_names_each_curve_once_and_says_what_the_band_is():
    (legend,) = plot_sweep(sweep("momentum", 3, "a", ["one", "two"])).legends
    words = [text.get_text() for text in legend.get_texts()]
    curves = ["μ = 0.9", "μ = 0.945", "μ = 0.99"]
    assert words == [*curves, "mean over the runs", "95% interval of the mean", "random order"]
    assert len({str(line.get_color()) for line in legend.get_lines()[:3]}) == 3


def test_a_prediction_is_a_dashed_line_beside_its_curve():
    dataset = sweep("momentum", 3, "a", ["one"])
    predicted = dataset.log_response.copy(data=np.full(dataset.log_response.shape, 0.5))
    figure = plot_sweep(dataset.assign(predicted_distance=predicted))
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    assert len(dashed) == 3
    assert all(set(np.asarray(line.get_ydata())) == {0.5} for line in dashed)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()].count("predicted") == 1


def with_record(dataset: xr.Dataset, **changes) -> xr.Dataset:
    record = {**json.loads(dataset.attrs["specification"]), **changes}
    return dataset.assign_attrs(specification=json.dumps(record))


def test_boundaries_of_two_kinds_look_different():
    dataset = sweep("momentum", 14, "a", ["one", "two"])
    record = json.loads(dataset.attrs["specification"])
    record["panels"][1]["process"] = {"kind": "ar2"}
    theory = {"criteria": ["map", "lyapunov", "mean_square"], "process": {}}
    dataset = with_record(dataset, panels=record["panels"], theory=theory)
    rate = dataset.rate.copy(data=np.broadcast_to(np.linspace(-1, 1, 8), dataset.rate.shape))
    dataset = dataset.assign(map_rate=rate, lyapunov_rate=rate, mean_square_rate=rate)
    figure = plot_sweep(dataset)
    (legend,) = figure.legends
    looks = {(line._dash_pattern[0], tuple(line._dash_pattern[1])) for line in legend.get_lines()}
    assert len(looks) == len(legend.get_texts()) == 3
    # A panel has the lines that its process has by the record, whatever the numbers say.
    lines = [sum(isinstance(item, ContourSet) for item in axes.collections) for axes in figure.axes]
    assert lines[:2] == [2, 1]


def test_panels_are_called_by_their_labels_and_end_where_their_limits_are():
    dataset = sweep("momentum", 3, "a", ["one", "two"]).assign_coords(
        label=("panel", ["η = 0.1", "two"])
    )
    record = json.loads(dataset.attrs["specification"])
    record["panels"][0]["limits"] = {"period": [0, 4]}
    figure = plot_sweep(with_record(dataset, panels=record["panels"]))
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == [
        "η = 0.1: 1 run overflowed, not shown",
        "two",
    ]
    ends = [max(line.get_xdata().max() for line in axes.lines) for axes in figure.axes[:2]]
    assert ends == [4, 7]


def test_a_value_has_one_colour_in_all_panels():
    dataset = sweep("momentum", 3, "a", ["one", "two"])
    record = json.loads(dataset.attrs["specification"])
    record["panels"][1]["limits"] = {"momentum": [0.94, 1]}  # without the first
    whole, part = plot_sweep(with_record(dataset, panels=record["panels"])).axes[:2]
    curves = [
        {
            line.get_label(): tuple(line.get_color())
            for line in axes.lines
            if len(line.get_xdata()) > 1
        }
        for axes in (whole, part)
    ]
    assert list(curves[1]) == ["μ = 0.945", "μ = 0.99"]
    assert curves[1].items() < curves[0].items()


def stability() -> xr.Dataset:
    momentum, lr = np.linspace(0.9, 0.99, 5), np.geomspace(0.002, 0.01, 6)
    rate = np.subtract.outer(momentum, 9 * lr) - 0.9
    setting = {"process": {}, "optimizer": {"lookahead": False}}
    attributes = {"setting": json.dumps(setting), "criterion": "map", "process": "sinusoid"}
    axes = {"momentum": momentum, "lr": lr}
    return xr.Dataset({"rate": (("momentum", "lr"), rate)}, axes, attributes)


def test_on_a_dark_page_words_and_marks_stand_out_and_maps_keep_their_colours():
    figure = new_figure(4, 3)
    axes = figure.add_subplot()
    (line,) = axes.plot([0, 1], color="#2166ac")
    dots = axes.scatter([0, 1], [1, 0], color="black")
    axes.set_title("a")
    mapped = plot_map(stability())
    (mesh,) = (item for item in mapped.axes[0].collections if isinstance(item, QuadMesh))
    before = np.array(mesh.to_rgba(mesh.get_array()))
    for one in (figure, mapped):
        darken(one)
        png_of(one)
        assert to_rgb(one.get_facecolor()) == to_rgb(PAPER)
        for text in one.findobj(Text):
            if text.get_text() and text.get_visible():
                assert contrast(text.get_color(), PAPER) >= 4.5, text
    assert contrast(line.get_color(), PAPER) >= 4.5
    assert isinstance(dots, PathCollection)
    assert all(contrast(color, PAPER) >= 4.5 for color in dots.get_facecolor())
    np.testing.assert_array_equal(mesh.to_rgba(mesh.get_array()), before)


def test_a_notebook_shows_what_a_plot_returns():
    from IPython.core.formatters import DisplayFormatter

    data, about = DisplayFormatter().format(plot_map(stability()))
    assert data["image/png"].startswith(b"\x89PNG") or data["image/png"].startswith("iVBOR")
    assert about["image/png"]["width"] == round(7.2 * 120)


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        figure = plot_map(stability())
        for ending in ("png", "svg", "pdf"):
            save_figure(figure, tmp_path / f"{name}.{ending}")
            figure.set_layout_engine("none")  # everything has its place, as where it is stored
    for ending in ("png", "svg", "pdf"):
        one, two = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_a_curve_of_which_one_point_is_left_is_seen():
    """A line through a single point has no length."""
    dataset = sweep("momentum", 2, "a", ["one"])
    kept = dataset.period == 1
    lost = {
        name: dataset[name].where(kept, np.inf) for name in ("run_log_response", "log_response")
    }
    curves = [line for line in plot_sweep(dataset.assign(lost)).axes[0].lines if line.get_label()]
    assert [len(line.get_xdata()) for line in curves] == [1, 1]
    assert {line.get_marker() for line in curves} == {"o"}
