"""What is done, running and lost, read by others while processes work."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from resonax.cli.app import _run
from resonax.core.errors import StoreError
from resonax.run import interrupts
from resonax.store import as_place
from resonax.sweeps import heartbeat
from resonax.sweeps.runner import run_experiments
from resonax.sweeps.status import read_status
from test_records import compute, made_up


@pytest.mark.parametrize("url", ["out", "memory://status-of-results/out"])
def test_others_see_what_is_done_and_running_and_lost(monkeypatch, capsys, url):
    monkeypatch.setattr(heartbeat, "_FIRST", 0.02)
    monkeypatch.setattr(heartbeat, "_AGAIN", 0.02)
    out, seen = as_place(url), []

    def looking(region, seed, double, advance):
        advance(0.5)
        if region["place"].start == 2:
            deadline = time.monotonic() + 20
            while not seen and time.monotonic() < deadline:
                (status,) = read_status(out)
                seen.extend(sign for sign in status.running if sign.share)
            monkeypatch.setattr(heartbeat, "LOST", -1.0)  # all that is there is old
            seen.append(read_status(out)[0])
            assert _run(["status", str(out), "--json"]) == (0, "")
            assert _run(["status", str(out)]) == (0, "")
        return compute(region, seed, double, advance)

    run_experiments([replace(made_up("smoke"), compute=looking)], out)
    sign, status = seen
    assert (sign.task, sign.share) == (2, 0.5)
    assert (status.tasks, status.done, status.running) == (6, 2, ())
    assert [one.task for one in status.lost] == [2]
    table, *lines = capsys.readouterr().out.splitlines()
    assert json.loads(table)["made-up"]["lost"][0]["task"] == 2
    assert lines[0] == "made-up: 2 of 6 tasks marked done, 1 lost"
    assert lines[1].startswith(f"  lost: task 2 on {sign.host}, process {sign.process}, silent for")
    (after,) = read_status(out)
    assert (after.done, after.running, after.lost) == (6, (), ())
    assert not heartbeat.read_signs(out)


def test_a_command_that_ends_at_once_leaves_no_sign(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "_FIRST", 0.01)
    monkeypatch.setattr(interrupts.signal, "signal", lambda *_: None)
    monkeypatch.setattr(interrupts.os, "_exit", lambda _: None)
    out = tmp_path / "out"
    out.mkdir()
    with heartbeat.signs_of_life(out, "made-up"):
        while not heartbeat.read_signs(out):
            time.sleep(0.005)
        interrupts.exit_now()  # as it does while a program is compiled, which cannot be stopped
        assert not list(out.iterdir())


def test_the_time_left_follows_the_pace_of_late():
    run_experiments([made_up("smoke")], "out")
    (status,) = read_status(as_place("out"))
    assert status.seconds_left is None  # nothing runs
    half = replace(status, done=2, pace=0.5, running=(heartbeat.Sign("made-up", 2),))
    assert half.seconds_left == 8.0


def test_a_process_of_this_machine_that_has_ended_is_lost_at_once():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    now = heartbeat.Sign("made-up", 2, beat=time.time())
    assert not now.is_lost
    assert replace(now, process=ended.pid).is_lost
    assert not replace(now, process=ended.pid, host="another").is_lost
    assert replace(now, beat=time.time() - 61).is_lost


def test_a_damaged_store_hides_no_other(capsys):
    run_experiments([made_up("smoke"), replace(made_up("smoke"), id="other")], "out")
    root = as_place("out") / "results" / "made-up.zarr" / "zarr.json"
    root.write_bytes(root.read_bytes()[:-9])
    assert _run(["status", "out"]) == (2, "")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("made-up: the metadata of out/results/made-up.zarr are damaged: run")
    assert second == "other: 6 of 6 tasks marked done"
    assert _run(["status", "out", "--json"]) == (2, "")
    table = json.loads(capsys.readouterr().out)
    assert (table["other"]["done"], table["other"]["trouble"]) == (6, None)
    assert "are damaged" in table["made-up"]["trouble"]
    run_experiments([made_up("smoke")], "out")
    assert _run(["status", "out"]) == (0, "")


def test_a_place_without_results_is_a_sentence(tmp_path):
    with pytest.raises(StoreError, match="no results in"):
        read_status(tmp_path)
    status, words = _run(["status", str(tmp_path / "nowhere")])
    assert status == 2
    assert "name a folder or URL" in words
