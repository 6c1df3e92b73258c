"""The command `resonax check`: statuses, JSON, bad files."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import resonax as rx
from resonax.cli.app import _run, app
from resonax.dynamics.build import build_setting
from resonax.figures import save_figure
from resonax.recordings.recording import read_recording
from resonax.spec.settings import check_setting

RUN = ["--lr", "0.01", "--momentum", "0.95", "--grid", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with a daily rhythm, and the same rows shuffled."""
    home = tmp_path_factory.mktemp("data")
    hours = np.arange(600)
    rng = np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=600)
    table = pd.DataFrame({"x": x, "y": np.roll(x, -1)})
    table.to_csv(home / "hourly.csv", index=False)
    table.sample(frac=1, random_state=0).to_csv(home / "shuffled.csv", index=False)
    return home


def status(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code, sentence = _run(["check", *map(str, words)])
    return code, capsys.readouterr().out, sentence


def test_statuses_and_json(folder, capsys):
    code, out, _ = status(capsys, folder / "hourly.csv", "--target", "y", *RUN, "--json")
    found = json.loads(out)
    assert code == 1
    assert (found["verdict"], found["cause"]) == ("diverges", "order")
    assert found["period"] == pytest.approx(24, rel=0.05)
    assert found["low"] < found["rate"] < found["high"]
    assert found["shuffled_rate"] < 0 < found["rate"]
    assert found["pass_radius"] > 1
    assert 0 < found["safe"]["momentum"] < 0.95
    assert 0 < found["safe"]["lr"] < 0.01
    assert found["safe"]["batch"] > 1
    assert found["safe"]["shuffle_buffer"] > 1
    code, out, _ = status(capsys, folder / "shuffled.csv", "--target", "y", *RUN, "--json")
    assert code == 0
    assert json.loads(out)["cause"] == "none"


def test_what_is_printed_and_written(folder, tmp_path, capsys, monkeypatch):
    # The pictures of a page are drawn in the tests of pages.
    monkeypatch.setattr("resonax.reports.check.plot_panels", lambda *_: {})
    page, picture = tmp_path / "report.html", tmp_path / "check.png"
    kept = tmp_path / "check.json"
    words = ["--target", "y", *RUN, "--html", page, "--plot", picture, "--out", kept]
    code, out, _ = status(capsys, folder / "hourly.csv", *words)
    assert code == 1
    first = " ".join(out.split())
    assert first.startswith("diverges: a linear model of 1 feature, trained by SGD with momentum")
    assert "one row per step (assumed, as no batch was given). In one pass of 600 steps" in first
    more = rx.load(kept).on_more
    said = r"this: the distance doubles every ([\d.]+) steps \(95% interval ([\d.]+) to ([\d.]+)\)"
    found = [float(number) for number in re.search(said, out).groups()]
    steps = np.log(2) / [more.rate, more.high, more.low]
    np.testing.assert_allclose(found, steps, rtol=0.05)
    assert "give the one that you train with, --batch N" in out
    assert "a rhythm of 24 steps" in " ".join(out.split())
    assert "largest safe momentum" in out
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert picture.stat().st_size > 10_000
    again = tmp_path / "again.png"
    save_figure(rx.load(kept).plot(), again)
    assert again.read_bytes() == picture.read_bytes()


def test_series_are_runs_of_their_own(folder, tmp_path, capsys):
    """What a series does does not depend on which others lie beside it in the file."""
    calm, wild = (pd.read_csv(folder / f"{name}.csv") for name in ("shuffled", "hourly"))
    both = pd.concat(
        [calm.assign(site="calm"), wild.assign(site="[wild]"), calm[:9].assign(site="x")]
    )
    wanted = rx.check(
        read_recording(both, "y", group_by="site").part(600, 1200), lr=0.01, momentum=0.95, grid=2
    )
    words = ["--target", "y", "--group-by", "site", "--features", "x", *RUN, "--json"]
    both.to_csv(tmp_path / "both.csv", index=False)
    code, out, _ = status(capsys, tmp_path / "both.csv", *words)
    found = json.loads(out)
    assert code == 1
    assert found["facts"]["series"] == "[wild]"
    assert found["facts"]["rows"] == "600"
    assert found["on_these_rows"] == wanted.to_dict()["on_these_rows"]
    assert found["safe"] == wanted.to_dict()["safe"]
    notes = " ".join(found["notes"])
    assert "Each of 2 series is a run of its own, and in 1 of them the distance from" in notes
    assert "1 series of fewer than 64 rows were left out" in notes


def test_a_batch_that_is_given_is_not_asked_for(folder, capsys):
    for batch in (1, 8):
        words = ["--target", "y", *RUN, "--batch", batch]
        _, out, _ = status(capsys, folder / "shuffled.csv", *words)
        rows = "one row per step" if batch == 1 else "8 rows per step"
        assert f"{rows}. In one pass of {600 // batch} steps" in " ".join(out.split())
        assert "No batch was given" not in out


def test_a_rise_on_the_way_has_the_status_of_a_divergence(tmp_path, capsys):
    """Rows that grow for 150 steps and are calm for the rest: the end alone would look fine."""
    steps = np.arange(1000)
    swing = np.where(steps < 150, 2.0 * np.sign(np.sin(2 * np.pi * steps / 22)), 0.0)
    x = swing + np.random.default_rng(0).normal(size=1000)
    pd.DataFrame({"x": x}).to_csv(tmp_path / "a.csv", index=False)
    words = ["--lr", "0.01", "--momentum", "0.97", "--batch", "1", "--grid", "2", "--as-is"]
    code, out, _ = status(capsys, tmp_path / "a.csv", *words)
    assert out.startswith("rises: ")
    assert code == 1


def test_many_passes_are_told_in_time_before_they_begin(folder, monkeypatch, capsys):
    """Hours of work do not begin without a word, be there a terminal or not."""

    class BegunError(Exception):
        pass

    def heavy() -> None:
        raise BegunError

    monkeypatch.setattr("resonax.cli.check.keep_compiled", heavy)
    words = ["check", str(folder / "hourly.csv"), "--target", "y", *RUN]
    for epochs, told in ((50_000, "30,000,000 steps, which take about 2."), (2, "")):
        with pytest.raises(BegunError):
            _run([*words, "--epochs", str(epochs)])
        error = capsys.readouterr().err
        assert told in error
        assert bool(error) == bool(told)


def text(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def cut(path: Path, content: bytes) -> Path:
    path.write_bytes(content[: len(content) // 2])
    return path


def make_bad(kind: str, home: Path) -> Path:
    rows = "".join(f"{i % 7}.5,{i % 5}\n" for i in range(200))
    table = "x,y\n" + rows
    if kind == "missing":
        return text(home / "a.csv", table.replace("3.5,", ",", 1))
    if kind == "text":
        return text(home / "a.csv", "x,city,y\n" + "1,Rome,2\n2,Oslo,1\n" * 100)
    if kind == "constant":
        return text(home / "a.csv", "x,z,y\n" + "1,5,2\n2,5,1\n" * 100)
    if kind == "target":
        return text(home / "a.csv", table.replace("y", "z", 1))
    if kind == "one row":
        return text(home / "a.csv", "x,y\n1,2\n")
    if kind == "few rows":
        return text(home / "a.csv", "x,y\n" + rows[: 6 * 20])
    if kind == "empty":
        return text(home / "a.csv", "")
    if kind == "infinite":
        return text(home / "a.csv", table.replace("3.5,", "inf,", 1))
    if kind == "cut":
        return text(home / "a.csv", table + "1.5")
    if kind == "cut gz":
        return cut(home / "a.csv.gz", gzip.compress(table.encode(), mtime=0))
    if kind == "cut npy":
        np.save(home / "b.npy", np.random.default_rng(0).normal(size=(300, 2)))
        return cut(home / "a.npy", (home / "b.npy").read_bytes())
    if kind == "cut parquet":
        pd.read_csv(text(home / "b.csv", table)).to_parquet(home / "b.parquet")
        return cut(home / "a.parquet", (home / "b.parquet").read_bytes())
    if kind == "pipe":
        os.mkfifo(home / "pipe.csv")
    names = {
        "pipe": "pipe.csv",
        "markup": "[red]\x1b[31m\u202e.csv",
        "long name": 300 * "a" + ".csv",
    }
    return home / names.get(kind, "nowhere.csv")


BAD = {
    "missing": "missing values in column 'x' (row 4)",
    "text": "column 'city' is text",
    "constant": "column 'z' is constant",
    "target": "unknown target 'y'",
    "one row": "1 row of data",
    "few rows": "at least 64 are needed",
    "empty": "a.csv is empty",
    "infinite": "infinite values in column 'x' (row 4)",
    "cut": "cut",
    "cut gz": "cut",
    "cut npy": "cut",
    "cut parquet": "Parquet|cut",
    "not there": "there is no file",
    "markup": "there is no file",
    "pipe": "is a pipe or a device",
    "long name": "name too long",
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_files_get_a_sentence_before_the_heavy_work(kind, tmp_path, capsys, monkeypatch):
    """Both commands that read files say the same, and nothing is left behind."""

    def heavy() -> None:
        raise AssertionError("the file was accepted")

    path = make_bad(kind, tmp_path)
    if kind != "few rows":  # which are counted when they have been read
        monkeypatch.setattr("resonax.cli.check.keep_compiled", heavy)
        monkeypatch.setattr("resonax.cli.judge.keep_compiled", heavy)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    before = sorted(os.listdir(tmp_path))
    target = ["--target", "1" if kind == "cut npy" else "y"]
    code, out, sentence = status(capsys, path, *target, *RUN, "--html", tmp_path / "report.html")
    assert (code, out) == (2, "")
    assert any(words in sentence for words in BAD[kind].split("|")), sentence
    assert sentence.isprintable()
    if kind != "few rows":  # other numbers of rows are too few for a verdict
        line = ["stability", "recorded", "--data", str(path), *target, *RUN[:4]]
        assert _run(line) == (2, sentence)
    assert sorted(os.listdir(tmp_path)) == before
    assert os.listdir(tmp_path / "temporary") == []


WAYS = {  # of one table with a gap: how it is written, and what must be said of it
    "comma": (lambda t, p: t.to_csv(p, index=False), "a.csv", {}),
    "decimal comma": (lambda t, p: t.to_csv(p, index=False, sep=";", decimal=","), "a.csv", {}),
    "named": (
        lambda t, p: t.to_csv(p, index=False, sep="|"),
        "a.tsv.gz",
        {"separator": "|", "decimal": "."},
    ),
    "no header": (
        lambda t, p: t.drop(columns="when").to_csv(p, index=False, header=False),
        "a.csv",
        {"features": "0,1", "order_by": None},
    ),
    "parquet": (lambda t, p: t.to_parquet(p), "a.parquet", {"features": "x"}),
    "npy": (
        lambda t, p: np.save(p, t.drop(columns="when")),
        "a.npy",
        {"features": "0", "order_by": None},
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_stability_reads_a_file_as_check_does(way, tmp_path):
    """Order by date, drop a row with a gap, standardise or not: the rows are the same."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(3, 2, 90), "z": rng.normal(size=90)})
    table["when"] = pd.date_range("2020-01-01", periods=90)[::-1].astype(str)
    table.loc[7, "x"] = np.nan
    write, name, asked = WAYS[way]
    write(table, tmp_path / name)
    asked = {"features": "x,z", "order_by": "when", "drop_missing": True, **asked}
    for standardise in (True, False):
        asked["standardise"] = standardise
        read = read_recording(tmp_path / name, **asked)
        given = {"process": "recorded", "data": tmp_path / name, "lr": 0.01, "momentum": 0.9}
        setting, notes = build_setting(check_setting(given | asked))
        assert np.array_equal(setting.process.data[:, 0], read.inputs)
        assert len(read.inputs) == 89
        assert notes == read.notes


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--lr", "fast", "--momentum", "0.9"], "--lr must be a number, got 'fast'"),
        (["--lr", "0.01"], "--momentum is missing: heavy_ball needs it, at least 0 and below 1"),
        (["--lr", "0.01", "--momentum", "2"], "momentum must be at least 0 and below 1, got 2"),
        ([*RUN, "--optimizer", "heavyball"], "did you mean 'heavy_ball'?"),
        ([*RUN, "--html", "report.pdf"], "--html must end in .html or .htm, got report.pdf"),
        ([*RUN, "--html", "no/where.html"], "the folder of no/where.html does not exist"),
        ([*RUN, "--batch", "1.5"], "batch must be a whole number, got '1.5'"),
        ([*RUN, "--basis", "cubic"], "unknown basis 'cubic'"),
        ([*RUN, "--tarjet", "y"], "no such option"),
    ],
)
def test_bad_options_are_told_in_a_sentence(folder, words, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, told = status(capsys, folder / "hourly.csv", "--target", "y", *words)
    assert (code, out) == (2, "")
    assert sentence.lower() in told.lower()
    assert list(tmp_path.iterdir()) == []


def test_the_real_command_ends_with_the_status(folder):
    words = [sys.executable, "-m", "resonax", "check", str(folder / "nowhere.csv"), *RUN]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith("resonax: there is no file")
    assert run.stderr.count("\n") == 1


def test_help_names_the_statuses():
    out = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    assert "exit status" in out
    assert "--shuffle" not in out
