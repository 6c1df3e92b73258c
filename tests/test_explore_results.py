"""Stored results by the API of `resonax explore`: every number is one of the store."""

from __future__ import annotations

import numpy as np
import pytest
from starlette.testclient import TestClient

import resonax as rx
from bad_requests import KNOWN, PORT, TOKEN
from resonax.explore.app import build_app
from resonax.explore.security import Site
from resonax.reports.claims import plain_claims, write_claims
from resonax.store import Layout, Store, Variable
from resonax.sweeps.judgement import Case, Claim

PERIODS, MOMENTA = np.linspace(10, 60, 5), np.linspace(0.5, 0.9, 12)


def _sweep(folder, momenta) -> None:
    """Store what a sweep of two panels would, the second inside limits."""
    coords = {"panel": np.array(["all", "slow"]), "momentum": momenta, "period": PERIODS}
    coords["run"] = np.arange(3)
    over = ("panel", "momentum", "period")
    layout = Layout(
        coords=coords,
        chunks={"panel": 1},
        variables={
            "log_response": Variable(over, "float64"),
            "rate": Variable(over, "float64"),
            "run_log_response": Variable((*over, "run"), "float64"),
        },
    )
    parts = {"process": {}, "model": {}, "optimizer": {}}
    panels = [
        {"name": "all", "limits": {}, **parts},
        {"name": "slow", "limits": {"period": [30.0, 60.0]}, **parts},
    ]
    store = Store.open(folder, layout, {"panels": panels, **parts}, {"title": "A sweep of ours"})
    for task in store.tasks:
        runs = np.random.default_rng(task.number).normal(size=(1, len(momenta), len(PERIODS), 3))
        runs[0, 0, 0, 0] = np.inf  # a run that overflowed
        mean = runs.mean(axis=3)
        store.write(task, {"log_response": mean, "rate": mean / 10, "run_log_response": runs})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("out")
    _sweep(home / "results" / "fine.zarr", MOMENTA)
    _sweep(home / "results" / "coarse.zarr", MOMENTA[:3])
    layout = Layout(
        coords={"phase": np.arange(40)},
        chunks={},
        variables={"height": Variable(("phase",), "float64")},
    )
    Store.open(home / "results" / "begun.zarr", layout, {"id": "begun"}, {"title": "Begun"})
    (home / "figures").mkdir()
    (home / "figures" / "fine.svg").write_text("<svg/>")
    case = Case("largest", 1.0, "<=", 2.0, interval=(0.5, np.inf))
    claim = Claim("small", "It is small.", "height", "A bound.", (case,), 0.0)
    write_claims(plain_claims([claim], scale="smoke", seed=0), home)
    return home


@pytest.fixture(scope="module")
def get(folder):
    app = build_app(Site(TOKEN, PORT, results=folder))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=KNOWN) as client:
        yield lambda path: client.get(f"/api/results{path}")


def test_experiments_and_claims_are_listed(get, folder):
    found = get("").json()
    assert found["name"] == folder.name
    done = {one["name"]: one["done"] for one in found["experiments"]}
    assert done == {"begun": False, "coarse": True, "fine": True}
    (claim,) = found["claims"]
    assert claim["outcome"] == "not decided"
    assert claim["worst"]["interval"] == [0.5, None]


def test_panels_have_the_numbers_of_the_store(get, folder):
    stored = rx.open_store(folder / "results" / "fine.zarr")
    found = get("/fine").json()
    assert found["title"] == "A sweep of ours"
    whole, _, slow = (found["panels"][place] for place in (0, 1, 2))
    assert whole["kind"] == "heatmap"
    wanted = stored.log_response.sel(panel="all").values / np.log(10)
    assert np.array(whole["z"][1:], float) == pytest.approx(wanted[1:])
    assert whole["z"][0][0] is None  # infinite, for which JSON has no word
    assert slow["x"]["values"] == pytest.approx(PERIODS[PERIODS >= 30])
    lines = get("/coarse").json()["panels"][0]
    assert lines["kind"] == "lines"
    assert len(lines["series"]) == 3
    assert len(lines["series"][0]["values"]) == len(PERIODS)


def test_the_runs_behind_a_cell(get, folder):
    stored = rx.open_store(folder / "results" / "fine.zarr")
    panel = get("/fine").json()["panels"][2]["name"]
    cell = get(f"/fine/cell?panel={panel}&x=1&y=4").json()
    place = {"momentum": MOMENTA[4], "period": PERIODS[PERIODS >= 30][1]}
    assert cell["coordinates"] == pytest.approx(place)
    runs = stored.run_log_response.sel(panel="slow", **place).values / np.log(10)
    assert cell["runs"] == pytest.approx(runs.tolist())
    assert cell["value"] == pytest.approx(runs.mean())
    for query in (f"panel={panel}&x=99&y=0", "panel=no&x=0&y=0"):
        assert get(f"/fine/cell?{query}").status_code == 404
    assert get("/fine/cell?panel=a&x=-1&y=b").status_code == 400


def test_figures_are_those_of_the_folder_alone(get):
    assert get("/fine/figure.svg").headers["content-type"].startswith("image/svg")
    for path in ("/fine/figure.png", "/fine/secret.txt", "/..%2f/figure.png", "/none/figure.png"):
        answer = get(path)
        assert answer.status_code == 404
        assert answer.json()["error"].endswith(".")


def test_the_code_opens_a_folder_of_any_name(get, folder, tmp_path, monkeypatch):
    odd = tmp_path / """it's "out\\n" #{x}"""
    odd.symlink_to(folder)
    app = build_app(Site(TOKEN, PORT, results=odd))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", headers=KNOWN) as client:
        code = client.get("/api/results/fine").json()["code"]["python"]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["dataset"].equals(rx.open_store(folder / "results" / "fine.zarr"))


def test_damaged_claims_are_told_and_the_numbers_are_shown_all_the_same(get, folder):
    path = folder / "claims.json"
    whole = path.read_bytes()
    assert get("").json()["claims_damaged"] is None
    path.write_bytes(whole.replace(b"holds", b"HOLDS", 1))
    try:
        found = get("").json()
        assert "claims.json is damaged" in found["claims_damaged"]
        assert (found["claims"], bool(found["experiments"])) == ([], True)
        assert get("/fine").status_code == 200
    finally:
        path.write_bytes(whole)


def test_an_unfinished_or_damaged_store_is_one_sentence(get, folder):
    answer = get("/begun")
    assert answer.status_code == 500
    assert "not complete" in answer.json()["error"]
