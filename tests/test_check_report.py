"""The page of a check stands alone, escapes what it is given, and says it in plain words."""

from __future__ import annotations

import base64
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from batteries import pass_battery
from pages import Page
from resonax.checking.check import check
from resonax.checking.result import Check
from resonax.core.errors import ArgumentError
from resonax.figures.check import plot_check, plot_panels
from resonax.figures.style import save_figure
from resonax.reports.check import render_check, write_check

HOSTILE = '<script>alert("1 & 2")</script>'
HIDDEN = "\x1b[31m\u202e\udcff$\\frac{$"  # controls, a mark that turns the direction, half a letter
REMEDIES = (
    "Largest safe momentum",
    "Largest safe step size",
    "Smallest safe batch",
    "Smallest safe shuffle buffer",
    "Momentum that converges fastest",
)


@pytest.fixture(scope="module", autouse=True)
def _coarse():
    """Draw fewer pixels: to fill and to compress them takes half the time of a picture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("resonax.figures.style._DPI", 50)
        yield


@pytest.fixture(scope="module")
def swinging() -> Check:
    """A rhythm that makes the weights swing, in columns with hostile names, and with a target."""
    import pandas as pd

    rng = np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * np.arange(600) / 24) + 0.5 * rng.normal(size=600)
    rows = pd.DataFrame({HOSTILE: x, "y": np.roll(x, -1)})
    return check(rows, "y", lr=0.01, momentum=0.95, grid=4)


@pytest.fixture(scope="module")
def calm() -> Check:
    """White noise, without a target."""
    rows = np.random.default_rng(1).normal(size=(600, 1))
    return check(rows, lr=0.01, momentum=0.5, grid=4)


@pytest.fixture(scope="module")
def written(swinging) -> str:
    """The page of that check, with its pictures."""
    return render_check(swinging, f"resonax check {HOSTILE}")


@pytest.fixture(scope="module")
def calm_page(calm) -> str:
    """The page of the other one."""
    return render_check(calm)


@pytest.fixture
def bare(monkeypatch):
    """Leave the pictures out, where only words are looked at."""
    monkeypatch.setattr("resonax.reports.check.plot_panels", lambda *_: {})


def without(found: Check, *names: str) -> Check:
    return replace(found, dataset=found.dataset.drop_vars(names))


def test_a_smaller_safe_value_beside_converges_is_explained(calm, swinging):
    def said(found: Check, value: float) -> bool:
        momentum = next(one for one in found.remedies if one.name == "momentum")
        others = [one for one in found.remedies if one.name not in ("momentum", "lr")]
        changed = (replace(momentum, value=value), *others)
        return "safe: asks for more than converges" in str(replace(found, remedies=changed))

    assert said(calm, 0.3)
    assert not said(calm, 0.9)
    assert not said(swinging, 0.3)  # it does not converge


def test_a_check_is_a_result_and_a_stored_one_is_drawn_again(swinging, tmp_path):
    pass_battery(swinging, tmp_path)
    hostile = replace(swinging, cause=HOSTILE)
    assert HOSTILE not in hostile._repr_html_()


def test_the_page_says_verdict_cause_and_every_remedy(swinging, written):
    page = Page(written)
    assert swinging.verdict == "diverges"
    assert swinging.cause == "order"
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for part in ("cause", "remedies", "pictures", "data", "words", "provenance"):
        assert part in ids
    meaning = swinging.meaning()
    assert f"{meaning[0].upper()}{meaning[1:]}." in page.text
    assert "a rhythm of 24 steps" in page.text
    assert "like a child on a swing" in page.text
    for name, remedy in zip(REMEDIES, swinging.remedies, strict=True):
        assert name in page.text
        assert remedy.value is None or f"= {remedy.value:.4g}" in page.text
    order = [
        page.text.index(word) for word in ("Training diverges", "Shuffled, 15", "Largest safe")
    ]
    assert order == sorted(order)
    assert "stayed bounded" in page.text
    assert all(text in page.text for _, text in swinging.facts)


def test_the_page_needs_nothing_else_and_escapes_names(written):
    page = Page(written)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe"})
    pictures = page.values("src")
    assert len(pictures) == 4
    dark = page.values("srcset")
    assert len(dark) == 4
    assert set(dark).isdisjoint(pictures)
    assert all(text.startswith("data:image/png;base64,iVBOR") for text in dark)
    assert all(text.startswith("data:image/png;base64,iVBOR") for text in pictures)
    assert all(len(base64.b64decode(text.partition(",")[2])) > 5000 for text in pictures)
    assert all(len(attrs["alt"]) > 20 for tag, attrs in page.elements if tag == "img")
    assert set(page.values("href")) <= {f"#{name}" for name in page.values("id")}
    assert not any(word in written for word in ("://", "url(", "@import", HOSTILE))
    assert page.text.count(HOSTILE) == 2  # the columns and the command


def test_where_it_converges_the_page_is_short(written, calm, calm_page):
    page = Page(calm_page)
    assert calm.verdict == "converges"
    assert "Training converges" in page.text
    assert "nothing has to change" in page.text
    assert "no model was trained" in page.text
    assert "none is needed" in page.text  # no shuffle buffer
    assert "cause" not in page.values("id")
    assert "swing about" not in page.text
    assert len(page.values("src")) == 1
    assert len(page.text) < 0.75 * len(Page(written).text)


def test_what_does_not_exist_is_said(swinging, bare):
    none = tuple(replace(remedy, value=None, confirmed=None) for remedy in swinging.remedies)
    page = Page(render_check(replace(swinging, remedies=none)))
    assert page.text.count("None found, as ") == len(REMEDIES)
    failed = tuple(replace(remedy, confirmed=False) for remedy in swinging.remedies)
    page = Page(render_check(replace(swinging, remedies=failed)))
    assert page.text.count("✗ did not stay bounded") == len(REMEDIES)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cause": "generic", "shuffled_rate": 0.01, "shuffled_low": 0.005}, "whatever their ord"),
        ({"cause": "generic", "shuffled_low": -0.005}, "Undecided: so few steps"),
        ({"period": None, "rhythm": None}, "no single rhythm was found"),
        (
            {"shuffled_low": -0.01, "shuffled_high": 0.002},
            "random order it is undecided whether the",
        ),
        ({"rhythm": "size"}, "a rhythm in the size of the rows of 24 steps"),
        ({"on_these_rows": {"verdict": "rises"}}, "Training is harmed on the way"),
        ({"on_these_rows": {"verdict": "rises"}, "cause": "generic"}, "Not the order, as far as"),
        ({"question": "Which batch?"}, "Which batch?"),
        ({"on_these_rows": {"log_pass_radius": 2000.0}}, "multiplies the distance by 3.9e+868 in"),
        ({"on_these_rows": {"log_pass_radius": math.log(0.25)}}, "divides the distance by 4 in"),
        ({"on_these_rows": {"log_pass_radius": None}}, "This is certain: the rows are given. On"),
        ({"on_more": {"verdict": "undecided"}}, "undecided (the interval includes 0)"),
        ({"on_more": {"verdict": "converges"}}, "On further data like this: the distance"),
        ({"notes": (HOSTILE,)}, HOSTILE),
        ({"notes": (HIDDEN,)}, r"\x1b[31m\u202e\udcff$\frac{$"),
        ({"facts": (("source", HIDDEN),)}, r"Check of \x1b[31m\u202e\udcff$\frac{$"),
    ],
)
def test_every_outcome_has_its_words(swinging, bare, changes, words):
    changes = {
        name: replace(getattr(swinging, name), **value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    assert words in Page(render_check(replace(swinging, **changes))).text


def test_figures_leave_out_what_is_missing(swinging, calm):
    everything = ["map", "training", "orders", "rhythms"]
    assert list(plot_panels(swinging)) == everything
    assert list(plot_panels(calm)) == ["map", "orders", "rhythms"]
    rhythm = ("without_values", "without_size", "randomised", "stretched", "tongues")
    less = without(swinging, *rhythm)
    panels = plot_panels(less)
    assert list(panels) == everything
    assert len(panels["orders"].axes) == 1
    for found in (swinging, calm, less, without(swinging, "error", "tongues")):
        figure = plot_check(found)
        assert isinstance(figure, Figure)
        titles = {axes.get_title(loc="left") for part in figure.subfigs for axes in _axes(part)}
        assert "The rhythms in the data" in titles
        assert ("The model, trained on these rows" in titles) == ("error" in found.dataset)


def _axes(part):
    return [axes for inner in part.subfigs for axes in inner.axes]


def test_extremes_can_be_drawn(swinging, tmp_path):
    data = swinging.dataset.copy(deep=True)
    data["error"] = data.error * 1e3
    data["error"][0, 5], data["error"][1, 7] = np.nan, -np.inf
    data["rate"] = data.rate - 1.0  # no boundary in sight
    settings = swinging.settings | {"momentum": 0.0}
    none = tuple(replace(remedy, value=None) for remedy in swinging.remedies)
    found = replace(swinging, dataset=data, settings=settings, remedies=none)
    save_figure(plot_check(found), tmp_path / "extreme.png")
    assert (tmp_path / "extreme.png").stat().st_size > 50_000


def test_the_same_check_gives_the_same_bytes(calm, calm_page, tmp_path):
    path = write_check(calm, tmp_path / "page.html")
    assert path == tmp_path / "page.html"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text(encoding="utf-8") == calm_page
    with pytest.raises(ArgumentError, match="does not exist"):
        write_check(calm, tmp_path / "deeper" / "page.html")
