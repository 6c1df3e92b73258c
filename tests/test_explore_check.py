"""Checks by the API of `resonax explore`: files, jobs, events, and nothing that is left behind."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

import resonax as rx
from bad_requests import KNOWN, PORT, TOKEN
from batteries import same
from resonax.checking.check import examine
from resonax.explore import check_worker
from resonax.explore.app import build_app
from resonax.explore.check_worker import CheckRequest
from resonax.explore.code import check_code
from resonax.explore.questions import parse_options
from resonax.explore.security import Site

BASE = f"http://127.0.0.1:{PORT}"
OPTIONS = {"lr": "0.01", "momentum": "0.95", "target": "y", "grid": "4"}


def _rows(count: int = 600) -> str:
    hours, rng = np.arange(count), np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=count)
    lines = (f"{a:.6f},{b:.6f}" for a, b in zip(x, 2 * x + 1, strict=True))
    return "x,y\n" + "\n".join(lines) + "\n"


@pytest.fixture
def uploads(tmp_path, monkeypatch) -> Path:
    """The folder in which uploads lie while they are read."""
    home = tmp_path / "uploads"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    return home


@pytest.fixture
def client(uploads):
    with TestClient(build_app(Site(TOKEN, PORT)), base_url=BASE, headers=KNOWN) as client:
        yield client
    assert list(uploads.iterdir()) == []


def _events(client, job: str, last: int = 0) -> list[tuple[str, dict]]:
    """Return all events of a job: its stream ends with the last of them."""
    answer = client.get(f"/api/jobs/{job}/events", headers={"last-event-id": str(last)})
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    blocks = [block for block in blocks if not block[0].startswith(":")]
    return [(block[1].removeprefix("event: "), json.loads(block[2][6:])) for block in blocks]


def test_a_check_is_that_of_the_library_and_of_its_code(tmp_path, monkeypatch, cli):
    """What the worker sends, without its process: stages, parts, and the whole."""
    path = tmp_path / "rows.csv"
    path.write_text(_rows())
    asked = parse_options(OPTIONS)
    sent: list[tuple[str, dict]] = []
    seen: list[tuple] = []

    def once(
        series, recording, *, stage=None, on_finding=None, **numbers
    ):  # the same: examined once
        given = series, recording, tuple(sorted(numbers.items()))
        if seen:
            same(seen[0][0], given)
        found = (
            seen[0][1]
            if seen
            else examine(series, recording, stage=stage, on_finding=on_finding, **numbers)
        )
        seen.append((given, found))
        return found

    monkeypatch.setattr("resonax.checking.check.examine", once)
    monkeypatch.setattr("resonax.reports.check.render_check", lambda *_: "<html>")
    check_worker._check(CheckRequest(path, path.name, asked), lambda *one: sent.append(one))
    kinds = [kind for kind, _ in sent]
    assert kinds[-2:] == ["result", "report"]
    assert kinds.index("read") < kinds.index("partial")
    shares = [content["fraction"] for kind, content in sent if kind == "progress"]
    assert shares == sorted(shares)
    result = next(content for kind, content in sent if kind == "result")
    parts: dict = {}
    for kind, content in sent:
        if kind == "partial":
            parts |= content
    assert {"verdict", "shuffled", "rhythm", "remedies", "sentence"} <= parts.keys()
    for name, value in parts.items():
        assert json.dumps(result[name]) == json.dumps(value), name
    code = result["code"]
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code["python"].replace("print(found)", ""), names)
    assert names["found"].to_dict() == result["check"]
    status, out, _ = cli(f"{code['command'].removeprefix('resonax ')} --json")
    assert status == int(result["verdict"] == "diverges")
    assert json.loads(out) == result["check"]
    assert len(seen) == 3
    assert np.shape(result["map"]["rate"]) == (4, 4)
    assert result["rhythm"]["period"] == pytest.approx(24, rel=0.05)
    assert len(result["trajectories"]["steps"]) == len(result["trajectories"]["shuffled"])
    momentum = next(one for one in result["remedies"] if one["name"] == "momentum")
    assert momentum["changes"] == {"momentum": momentum["value"]}


def test_code_of_a_check_has_every_option():
    asked = parse_options(
        {
            "lr": "0.01",
            "momentum": "0.9",
            "order-by": "a date",
            "drop_missing": "true",
            "standardise": "false",
            "bias": "false",
            "separator": ";",
            "batch": "4",
        }
    )
    code = check_code(asked, "my data.csv", example=False)
    assert code["command"] == (
        "resonax check 'my data.csv' --lr 0.01 --momentum 0.9 --order-by 'a date' "
        "--drop-missing --as-is --no-bias --separator ';' --batch 4"
    )
    basis = check_code({**asked, "basis": "radial:0,1"}, "a.csv", example=False)["python"]
    assert "basis=lambda dim: learners.Radial.of(" in basis
    assert "from resonax import learners\n" in basis


def test_columns_are_those_of_the_reader(client, tmp_path):
    table = "when,<b>speed</b>,word\n2020-01-01,1.5,a\n2020-01-02,,b\n"
    files = {"file": ("../../<i>x.csv", table.encode())}
    found = client.post("/api/columns", files=files).json()
    assert found["name"] == "<i>x.csv"  # JSON, and never mark-up
    assert found["rows"] == 2
    kinds = {column["name"]: column["kind"] for column in found["columns"]}
    assert kinds == {"when": "date", "<b>speed</b>": "number", "word": "text"}
    example = client.get("/api/columns?example=true").json()
    assert {"temp", "date"} <= {column["name"] for column in example["columns"]}
    assert example["options"]["target"] == "temp"
    assert client.get("/api/columns").status_code == 404  # no file was named
    for name, content in (("x.txt", b"1,2"), ("x.parquet", b"no"), ("x.csv", b""), ("", b"1")):
        answer = client.post("/api/columns", files={"file": (name or "x", content)})
        assert answer.status_code == 400
        assert answer.json()["error"].endswith(".")


def test_a_job_fails_is_cancelled_and_replaced_and_leaves_no_file(client, uploads):
    """In a process of its own: a bad file, and checks that are given up while they wait or run."""

    def start(name: str, **more) -> str:
        files = {"file": (name, _rows(400).encode())}
        answer = client.post("/api/check", files=files, data=OPTIONS | more, headers=who)
        assert answer.status_code == 202, answer.text
        return answer.json()["job"]

    who = {"x-resonax-client": "one"}
    first = start("a.csv")
    second = start("b.csv")  # of the same client: the first is given up
    assert _events(client, first)[-1] == ("cancelled", {})
    assert client.get(f"/api/jobs/{first}").json()["state"] == "cancelled"
    assert client.get(f"/api/jobs/{second}/report").status_code == 409
    assert client.delete(f"/api/jobs/{second}").status_code == 204
    assert _events(client, second)[-1] == ("cancelled", {})
    kept = []
    for target in ("nothing", "neither"):  # the second by the process of the first
        third = start("c.csv", target=target)
        name, told = _events(client, third)[-1]
        assert name == "failed"
        assert target in told["error"]
        # A page that comes back sees the end again, and one that saw it nothing more of it.
        assert _events(client, third)[-1] == (name, told)
        while client.app.state.jobs.find(third).process is not None:
            time.sleep(0.01)
        kept.append(client.app.state.jobs._spare)
    assert kept[0] is kept[1]
    while any(any(folder.iterdir()) for folder in uploads.iterdir()):  # no upload is kept
        time.sleep(0.01)
    assert client.post("/api/check", data=OPTIONS).status_code == 404  # no file was named


def test_uploads_of_a_server_that_was_killed_are_removed(uploads):
    stale = uploads / "resonax-explore-999999999-x"
    other = uploads / "resonax-explore-1-x"  # of a process that lives
    for folder in (stale, other):
        folder.mkdir()
    with TestClient(build_app(Site(TOKEN, PORT)), base_url=BASE):
        assert not stale.exists()
    assert other.exists()
    other.rmdir()


def test_the_options_of_a_form_are_those_of_the_command():
    assert parse_options({"lr": "0.1", "momentum": "0", "horizon": "2", "bias": "true"}) == {
        "lr": 0.1,
        "momentum": 0.0,
        "horizon": 2,
        "bias": True,
    }
    for fields, word in (
        ({"lr": "0.1", "momentum": "0.5", "batch": "2.5"}, "whole number"),
        ({"lr": "0.1", "momentum": "0.5", "colour": "red"}, "unknown option"),
        ({"lr": "nan", "momentum": "0.5"}, "lr"),
        ({"momentum": "0.5"}, "lr is missing"),
        ({"lr": "0.1", "momentum": "0.5", "bias": "perhaps"}, "true or false"),
    ):
        with pytest.raises(rx.ArgumentError, match=word):
            parse_options(fields)
