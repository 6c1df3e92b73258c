"""The paper's text: each number is computed, and those that the pages give too are the same."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("vega_datasets")

ROOT = Path(__file__).parent.parent
PAPER = ROOT / "paper"


@pytest.fixture(scope="module")
def make() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PAPER)
        spec = importlib.util.spec_from_file_location("make_paper", PAPER / "make.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def text(make) -> str:
    return make.write_text({name: compute() for name, compute in make.NUMBERS.items()})


def test_every_place_is_filled_and_no_number_is_typed(make, text):
    assert not re.search(r"\{\{|\{%|%\}|\b(nan|None|inf)\b", text)
    template = (PAPER / "paper.md").read_text()
    typed = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", template, flags=re.S)
    typed = re.sub(r"\$\$.*?\$\$", "", typed, flags=re.S)  # the formula of the bound
    typed = re.sub(
        r"\[?@\w+\]?|1/\(1-\\beta_2\)|beta_[12]|0 \\le H_k|c > 0|prediction of 0", "", typed
    )
    assert re.findall(r"\d+", typed) == []


def test_a_number_that_is_missing_is_an_error(make):
    with pytest.raises(Exception, match="orders"):
        make.write_text({})


def test_figures_have_data_and_are_shown(make, text):
    shown = re.findall(r"\]\(([\w-]+\.png)\)", text)
    assert shown == list(make.FIGURES)
    for draw in make.FIGURES.values():
        figure = draw()
        assert figure.axes
        assert all(axes.has_data() for axes in figure.axes)
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    for number in range(1, len(shown) + 1):
        assert len(re.findall(rf"Figure {number}\b", text)) > 1  # its caption and the text


@pytest.mark.parametrize(
    ("page", "in_page", "in_paper"),
    [
        ("every-order", "every order up to momentum 0.810", "safe up to momentum 0.810"),
        ("every-order", "grows by 0.0473 a step", "worst order grows by 0.0473"),
        ("every-order", "safe below momentum 0.701", "is safe below momentum 0.701"),
        ("every-order", "as recorded: +0.0101", "as recorded (+0.0101 per step)"),
        ("every-order", "the largest growth found is 0.0333", "+0.0333 in the worst order"),
        ("adam", "settles 0.169", "the predicted distance is 0.169"),
        ("adam", "1.80 times as far", "1.80 times that"),
        ("adam", "from 9.27 to 32.8 steps", "9.27 to 32.8 steps"),
        ("adam-divergence", "grows by 0.000188 in each", "theory gives 0.000188 per step"),
        ("adam-divergence", "1.45 times as large", "multiply an error by 1.45"),
        ("networks", "35 of 48 cases", "35 of 48 cases"),
        ("networks", "54 of 60 states", "54 of 60 states"),
        ("index", "in 21 of 35 cases", "it is within a factor of two in 21 of 35"),
        ("networks", "| 2.0 | 0.40 |", "gives 0.40 and 0.37"),
    ],
)
def test_numbers_are_those_of_the_pages(text, page, in_page, in_paper):
    words = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    assert in_page in words
    assert in_paper in " ".join(text.split())


def test_simulations_confirm_what_the_text_says_of_them(make):
    orders, held = make.number_orders(), make.number_held_rows()
    assert orders["shortfall"] >= 0  # no turning row grows below the bound
    assert orders["gap"] < 1e-3
    assert orders["confirmed"] is True
    assert held["simulated"] == pytest.approx(held["predicted"], rel=0.1)
    for count in (held["short"], held["long"], held["near"]):
        assert count["both"] == count["by_theory"]  # what the theory finds grows
    assert held["near"]["simulated"] == held["near"]["both"] > 0
    curve = make.held_curve()
    assert ((curve[:, 0] > 0) == (curve[:, 1] > 0.01)).all()


def test_every_work_cited_is_in_the_list_and_in_the_page_on_the_literature(text):
    entries = (PAPER / "paper.bib").read_text()
    assert set(re.findall(r"@(\w+\d{4})", text)) == set(re.findall(r"@\w+\{(\w+),", entries))
    page = (ROOT / "docs" / "literature.md").read_text()
    known = " ".join(re.sub(r"[*\\]", "", page).lower().split())
    for title in re.findall(r"^  title = \{(.*)\}", entries, re.M):
        plain = re.sub(r"[{}]", "", title).lower().removesuffix(", part ii")
        assert plain in known, title
