"""The report stands alone and is well formed; the JSON is valid; the table shows every number."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from pages import Page
from resonax.cli.claims import show_claims
from resonax.core.errors import StoreError
from resonax.figures.style import new_figure, save_figure
from resonax.reports.claims import plain_claims, read_claims, write_claims
from resonax.reports.reproduction import Report, Section, write_report
from resonax.sweeps.judgement import Case, Claim, measured_text
from test_records import made_up

MARKUP = '<script>alert("1 & 2")</script>'
CASE = Case("sinusoid", 0.97312, ">=", 0.95)
CLAIMS = (
    Claim(
        "contour-separates",
        "The contour separates [bold]cells[/bold].",
        "share of the cells of the map where divergence and radius > 1 agree",
        f"Reason with {MARKUP}.",
        (
            CASE,
            Case("ar2", 0.9499996, ">=", 0.95, interval=(0.9412, 0.94999)),
            Case("other", 0.2, ">=", 0.95, decides=False),
        ),
        0.01,
        "The mean is [random].",
    ),
    Claim(
        "adam-bounded",
        MARKUP,
        "distance",
        "why",
        (Case("one", math.nan, "<=", 1e4),),
        0.01,
        "Gone.",
    ),
    Claim("floquet", "It grows.", "growth", "why", (Case("one", -1.234567e-09, "<", 1e-05),), 0.0),
    Claim(
        "low-momentum-mitigates", "No.", "ratio", "why", (Case("all", math.inf, ">", 12345),), 0.01
    ),
)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    figure = tmp_path_factory.mktemp("figures") / "figure.png"
    save_figure(new_figure(2, 1), figure)
    readings = (("last steps", f"of each run {MARKUP}"),)
    plain = {"id": "a-map", "title": "A map", "paper": "Fig. 2a", "caption": "One.\n\nTwo."}
    odd = {"id": 'odd"id', "title": MARKUP, "paper": "App.", "caption": f"Caption {MARKUP}"}
    more = {"readings": readings, "deviations": ("Other inputs than in the paper.",)}
    first = Section(replace(made_up(""), **plain, **more, cells=2500, runs=10), figure, None, 3.2)
    second = Section(replace(made_up(""), **odd, cells=1, runs=1), figure)
    run = ("smoke", 7, "2 x CPU", {"resonax": "0.1.0"}, 3754.0, "resonax reproduce --seed 7")
    return Report((first, second), CLAIMS, *run)


@pytest.fixture(scope="module")
def source(report, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "deeper"
    path = write_report(report, folder)
    assert [entry.name for entry in folder.iterdir()] == [path.name] == ["report.html"]
    return path.read_text(encoding="utf-8")


def test_the_page_is_well_formed_and_shows_everything(source, report):
    page = Page(source)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    for section in report.sections:
        record = section.experiment
        assert record.id in ids
        assert f"#{record.id}" in page.values("href")
        assert all(part in page.text for part in (record.title, record.paper, "One.", "Two."))
    for claim in CLAIMS:
        assert f"claim-{claim.id}" in ids
        assert all(text in page.text for text in (claim.id, claim.claim, claim.reason, claim.note))
        assert all(measured_text(case) in page.text for case in claim.cases)
    assert "2 of 4 claims hold at the smoke scale." in page.text
    assert page.text.count("✗ does not hold: contour-separates.") == 1
    assert page.text.count("? not decided: adam-bounded.") == 1
    assert page.text.count("✗ does not hold") == 4  # summary, claim, a deciding case, one shown
    assert page.text.count("0.9412 to 0.95") == 2  # in the row and in the case
    assert "there is no chance in these figures" in page.text
    assert page.text.count("Other inputs than in the paper.") == 1
    for fact in ("seed7", "2 x CPU", "1 h 2 min", "resonax 0.1.0", "resonax reproduce --seed 7"):
        assert fact in page.text
    assert "Computed in 3.2 s, 2,500 cells, 10 runs of each." in page.text
    assert "Stored already, 1 cell, 1 run of each." in page.text


def test_the_page_needs_nothing_else_and_escapes_text(source, report):
    page = Page(source)
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "link", "iframe", "b"})
    pictures = page.values("src")
    assert len(pictures) == len(report.sections)
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in pictures)
    assert all(attrs["alt"] for tag, attrs in page.elements if tag == "img")
    assert set(page.values("href")) <= {f"#{name}" for name in page.values("id")}
    assert not any(word in source for word in ("://", "url(", "@import"))
    assert page.text.count(MARKUP) >= 5


def test_a_figure_that_is_no_png_is_refused_and_leaves_no_page(report, tmp_path):
    (tmp_path / "figure.png").write_text("no picture")
    section = Section(made_up(""), tmp_path / "figure.png")
    with pytest.raises(StoreError, match="is not a PNG"):
        write_report(Report((section,), (), "paper", 0, "", {}, 0, ""), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_claims_as_json(tmp_path):
    text = write_claims(plain_claims(CLAIMS, scale="smoke", seed=3), tmp_path).read_text(
        encoding="utf-8"
    )
    claims = json.loads(text, parse_constant=pytest.fail)["claims"]  # no NaN and Infinity
    assert [claim["id"] for claim in claims] == [claim.id for claim in CLAIMS]
    assert [claim["holds"] for claim in claims] == [False, None, True, True]
    assert [claim["measured"] for claim in claims] == [0.9499996, None, -1.234567e-09, None]
    assert claims[0]["cases"][2]["decides"] is False
    assert claims[1]["outcome"] == "not decided"
    assert (claims[0]["significance"], claims[0]["interval"]) == (0.01, [0.9412, 0.94999])
    assert {claim["seed"] for claim in claims} == {3}


def test_claims_that_were_not_judged_again_are_kept(tmp_path, caplog):
    first, second = (
        plain_claims(CLAIMS[:2], scale="smoke", seed=3),
        plain_claims(CLAIMS[1:3], scale="smoke", seed=4),
    )
    for judged in (first, second, []):
        path = write_claims(judged, tmp_path)
    assert read_claims(path) == [first[0], *second]


@pytest.mark.parametrize(
    "damage", ["[", "{}", "[1]", '[{"id": "x"}]', '{"claims": []}', "[" * 100_000, "\0", None]
)
def test_damaged_claims_do_not_end_the_work(tmp_path, damage, caplog):
    path = write_claims(plain_claims(CLAIMS[:1], scale="smoke", seed=3), tmp_path)
    whole = path.read_bytes()
    # The least that can happen: one word, which leaves claims that could be.
    changed = whole.replace(b'"does not hold"', b'"holds"')
    assert changed != whole
    path.write_bytes(changed if damage is None else damage.encode())
    with pytest.raises(StoreError, match="is damaged, or not what this version"):
        read_claims(path)
    write_claims(plain_claims(CLAIMS[:1], scale="smoke", seed=3), tmp_path)
    assert path.read_bytes() == whole
    assert "is damaged, or not what this version" in caplog.messages[0]


def test_a_claim_that_depends_on_the_reading_is_shown_with_both(report, tmp_path):
    cases = (
        Case("table", 2.0, ">=", 3.0, reading="norm 1/2"),
        Case("text", 3.0, ">=", 3.0, reading="norm 1"),
    )
    claim = Claim("three-peaks", "Three.", "peaks", "why", cases, 0.0)
    page = write_report(replace(report, claims=(claim,)), tmp_path).read_text(encoding="utf-8")
    for words in (
        "depends on the reading",
        "norm 1/2: does not hold",
        "norm 1: holds",
        "0 of 1 claim",
    ):
        assert words in page
    stream = io.StringIO()
    show_claims([claim], Console(file=stream, width=200))
    shown = stream.getvalue()
    assert "0 of 1 claim holds, 1 depends on the reading." in shown
    words = "three-peaks depends on the reading (norm 1/2: does not hold; norm 1: holds): table: 2"
    assert words in shown
    path = write_claims(plain_claims([claim], scale="smoke", seed=0), tmp_path)
    assert read_claims(path)[0]["holds"] is None


def test_claims_as_a_table(tmp_path):
    path = write_claims(plain_claims(CLAIMS, scale="paper", seed=3), tmp_path)
    lines = path.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "Made by `resonax reproduce --scale paper --seed 3`."
    rows = lines[4:]
    assert len(rows) == len(CLAIMS)
    assert rows[0] == (
        "| `contour-separates` | ar2 | 0.9499996 | 0.9412 to 0.95 | >= 0.95 | **does not hold** "
        "| 0.01 |"
    )
    assert rows[2].endswith("| holds | exact |")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_shows_every_number_in_full(width):
    stream = io.StringIO()
    show_claims(CLAIMS, Console(file=stream, width=width))
    text = stream.getvalue()
    assert not {"\x1b", "…"} & set(text)
    lines = text.splitlines()
    for claim in CLAIMS:
        row = next(line for line in lines if line.startswith(f"{claim.id} "))
        worst = claim.worst
        assert measured_text(worst) in row
        assert f"{worst.comparison} {worst.threshold:g} " in row
        word = {True: "holds", False: "does not", None: "not decided"}[claim.holds]
        assert row.rstrip().endswith(word)
        assert len(row) <= 80 or width != 80
    assert lines[-3] == "2 of 4 claims hold, 1 does not, 1 is not decided."
    assert lines[-2] == (
        "contour-separates does not hold: ar2: 0.9499996 (0.9412 to 0.95), claimed >= 0.95. "
        "The mean is [random]."
    )
    assert lines[-1] == "adam-bounded is not decided: one: not a number, claimed <= 10000. Gone."
