"""README and pages tell the truth: their commands run, their names exist, nothing is forgotten."""

from __future__ import annotations

import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import resonax
from resonax.spec import sweep_checks
from resonax.theory import maps
from test_experiments import REPRODUCE, SWEEP

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / "docs" / "reference").glob("*.md"),
]


@pytest.fixture
def hourly(tmp_path: Path, command: str) -> Path:
    """A part of the file that the pages speak of: the next hour predicted from this one."""
    from vega_datasets import data

    table = data.sf_temps()[["temp"]][3000:4200]
    if "next" in command:
        table["next"] = table["temp"].shift(-1)
    table.dropna().to_csv(tmp_path / "hourly.csv", index=False)
    return tmp_path


def commands() -> list[str]:
    """Every `resonax` line of every shell block, but for the server, which would not end."""
    blocks = [
        block for page in PAGES for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.S)
    ]
    lines = [line for block in blocks for line in block.splitlines()]
    lines = [line for line in lines if not line.startswith("resonax explore")]
    return list(dict.fromkeys(line for line in lines if line.startswith("resonax ")))


def test_there_are_commands():
    assert len(commands()) >= 4


# The first verdict is that of the README, whose output is compared below.
FIRST = next(line for line in commands() if line.startswith("resonax stability"))
ELSEWHERE = {FIRST, shlex.join(["resonax", *REPRODUCE])}  # what other tests run, word by word


@pytest.fixture
def brief(monkeypatch):
    """Runs and paths that are few and brief; all else is as the command has it."""
    at_smoke = sweep_checks._at_smoke

    def at_fewer_steps(table: dict[str, Any]) -> dict[str, Any]:
        small = at_smoke(table)
        counts = {"momentum": 2, "period": 4}  # as in another test, which has these programs too
        axes = {
            name: {**axis, "count": counts.get(name, 2)} if "count" in axis else axis
            for name, axis in small["axes"].items()
        }
        return {**small, "axes": axes, "run": SWEEP["run"]}

    monkeypatch.setattr(sweep_checks, "_at_smoke", at_fewer_steps)
    monkeypatch.setattr(maps, "lyapunov_rates", partial(maps.lyapunov_rates, paths=8, steps=512))


@pytest.mark.parametrize("command", [line for line in commands() if line not in ELSEWHERE])
def test_every_command_of_the_pages_runs(command, hourly, brief, tmp_path, cli, monkeypatch):
    # The pictures of a page are drawn in the tests of pages.
    monkeypatch.setattr("resonax.reports.check.plot_panels", lambda *_: {})
    # Coarser grids: what is tested is that the line works as written, not how long it takes.
    words = [re.sub(r":\d+(:log)?$", r":2\1", word) for word in shlex.split(command)]
    coarse = ["--grid", "4"] if words[1] == "check" else []
    status, _, errors = cli(shlex.join(words[1:] + coarse))
    # Data on which training diverges end with 1, as the pages say.
    assert status == int(words[1] == "check"), errors
    for word in words:
        if word.endswith((".png", ".nc", ".html")):
            assert (tmp_path / word).stat().st_size > 1000


def test_the_readme_shows_what_the_command_prints(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    readme = (ROOT / "README.md").read_text()
    status, out, _ = cli(FIRST.removeprefix("resonax "))
    shown = re.search(r"```text\n(.*?)```", readme, re.S)
    assert shown is not None
    assert status == 1  # it diverges
    assert [line.rstrip() for line in out.splitlines()] == shown[1].splitlines()


def test_what_the_package_gives_at_its_top_stays_few():
    assert len(resonax.__all__) <= 50, "export from a room what only an extension needs"


def test_the_reference_lists_what_the_package_gives_at_its_top():
    pages = [ROOT / "docs" / "api.md", *(ROOT / "docs" / "reference").glob("*.md")]
    shown = "\n".join(page.read_text() for page in pages)
    listed = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", shown, re.M)
    assert sorted(listed) == sorted(resonax.__all__)
    named = re.findall(r"`(\w+)`[,| ]", (ROOT / "docs" / "api.md").read_text().partition("|---")[2])
    assert sorted([*named, "__version__"]) == sorted(resonax.__all__)


def test_every_public_name_exists_and_is_documented():
    for name in resonax.__all__:
        assert getattr(resonax, name).__doc__, name
    assert dir(resonax) == sorted(resonax.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = resonax.nonsense


def test_links_between_the_pages_hold():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
