"""Progress of results, read by other processes while a run goes on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from resonax.cli.app import _run
from resonax.core.errors import StoreError
from resonax.store import as_location
from resonax.sweeps.runner import run_experiments
from resonax.sweeps.status import Status, read_status
from test_records import compute, made_up


@pytest.mark.parametrize("url", ["out", "memory://status-of-results/out"])
def test_the_status_is_read_while_a_run_goes_on(capsys, url):
    out, seen = as_location(url), []

    def looking(region, seed, double, advance):
        if region["place"].start == 2:
            seen.extend(read_status(out))
            assert _run(["status", str(out), "--json"]) == (0, "")
            assert _run(["status", str(out)]) == (0, "")
        return compute(region, seed, double, advance)

    run_experiments([replace(made_up("smoke"), compute=looking)], out)
    (status,) = seen
    assert (status.tasks, status.done, status.error) == (6, 2, None)
    table, line, explained = capsys.readouterr().out.splitlines()
    assert json.loads(table)["made-up"]["done"] == 2
    assert line.startswith("made-up: 2 of 6 tasks marked done")
    assert "A task computes one part" in explained
    assert "cells" in explained
    (after,) = read_status(out)
    assert (after.done, after.seconds_left) == (6, None)


def test_the_time_left_follows_the_recent_speed_while_tasks_are_stored():
    half = Status("made-up", tasks=6, done=2, age=3.0, speed=0.5)
    assert half.seconds_left == 8.0
    assert replace(half, age=61.0).seconds_left is None  # nothing is stored any more
    assert replace(half, age=61.0, speed=0.01).seconds_left == 400.0  # a task takes longer
    assert replace(half, done=6).seconds_left is None
    assert replace(half, speed=None).seconds_left is None


def test_a_damaged_store_hides_no_other(capsys):
    run_experiments([made_up("smoke"), replace(made_up("smoke"), id="other")], "out")
    root = as_location("out") / "results" / "made-up.zarr" / "zarr.json"
    root.write_bytes(root.read_bytes()[:-9])
    assert _run(["status", "out"]) == (2, "")
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.startswith("made-up: the metadata of out/results/made-up.zarr are damaged: run")
    assert second == "other: 6 of 6 tasks marked done"
    assert _run(["status", "out", "--json"]) == (2, "")
    table = json.loads(capsys.readouterr().out)
    assert (table["other"]["done"], table["other"]["error"]) == (6, None)
    assert "are damaged" in table["made-up"]["error"]
    run_experiments([made_up("smoke")], "out")
    assert _run(["status", "out"]) == (0, "")


def test_a_folder_without_results_is_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="no results in"):
        read_status(tmp_path)
    status, words = _run(["status", str(tmp_path / "nowhere")])
    assert status == 2
    assert "name a folder or URL" in words
