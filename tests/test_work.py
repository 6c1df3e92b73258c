"""Where work is done: options that cannot be, GPUs that are shared out, and exit statuses."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from resonax.cli.app import _run
from resonax.cli.work import Work, check_work
from resonax.core.errors import ArgumentError
from resonax.paper.catalogue import EXPERIMENTS
from resonax.run import clusters
from resonax.run.executors import as_executor, visible_gpus, workers_per_gpu
from resonax.spec.sweep_checks import parse_sweep
from resonax.sweeps.experiment import from_sweep
from sweep_tables import MAP, to_toml
from test_records import break_odd, made_up

SHARDS = ["0/10", "11/10", "3", "1/0", "-1/3", "1/2/3", "a/b", "1.5/2", "9999999/9999999", ""]
PLACES = ["dask", "dask://", "dask://host", "dask://host:0", "dask://h:99999", "tcp://h:1", "slrm"]
PLACES += ["dask://a b:8786", "https://h:8786", "", "dask://127.0.0.1:1", "moab"]  # none is there
BAD = [
    *(["--shard", part] for part in SHARDS),
    *(["--on", place] for place in PLACES),
    *(["--workers", count] for count in ("0", "-1", "1.5", "1e6", "many")),
    ["--shard", "1/2", "--on", "slurm"],
]


def test_what_cannot_be_is_a_sentence_before_jax_is_loaded_or_anything_written(tmp_path):
    (tmp_path / "good.toml").write_bytes(to_toml(MAP))
    lines = [[*command, *bad] for command in (["sweep", "good.toml"], ["reproduce"]) for bad in BAD]
    code = (
        "import json, sys\n"
        "from resonax.cli.app import _run\n"
        "found = [_run(line) for line in json.loads(sys.argv[1])]\n"
        "heavy = {'jax', 'xarray', 'matplotlib', 'distributed', 'dask'} & set(sys.modules)\n"
        "print(json.dumps([found, sorted(heavy)]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(lines)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    found, heavy = json.loads(done.stdout)
    assert heavy == []
    for line, (status, sentence) in zip(lines, found, strict=True):
        assert status == 2, line
        assert line[-2] in sentence or "no Dask scheduler answers" in sentence, (line, sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["good.toml"]


def test_a_missing_extra_and_a_server_that_is_no_scheduler_are_sentences(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"dask://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(clusters, "_TIMEOUT", 0.5)
        with (
            pytest.raises(ArgumentError, match="no Dask scheduler answers"),
            clusters.cluster_executor(place, prepare=print),
        ):
            pytest.fail("it is none")
        monkeypatch.setattr(clusters.importlib.util, "find_spec", lambda _: None)
        with pytest.raises(ArgumentError, match=r"install resonax\[cluster\]"):
            check_work(Work(on=place))


def test_what_is_no_executor_is_said():
    with pytest.raises(ArgumentError, match=r"one of concurrent.futures, or a Dask Client, got in"):
        as_executor(3)


def test_gpus_that_a_queue_has_given_are_those_that_are_shared_out():
    assert visible_gpus({}, lambda: "0\n1\n2\n") == ("0", "1", "2")
    assert visible_gpus({}, lambda: "No devices were found\n") == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1,3"}, lambda: "0\n1\n2\n3\n") == ("1", "3")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, lambda: "0\n") == ()
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-7a"}) == ("MIG-7a",)


@pytest.mark.parametrize(
    ("size", "gpus", "cores", "each"),
    [(2**20, 1, 16, 4), (2**25, 1, 16, 2), (2**30, 1, 16, 1), (2**20, 4, 8, 2), (2**20, 8, 4, 1)],
)
def test_small_tasks_share_a_gpu_as_far_as_there_are_cores(size, gpus, cores, each):
    assert workers_per_gpu(size, [str(number) for number in range(gpus)], cores) == each


def test_a_dry_run_says_what_it_takes_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = {**MAP, "run": {"runs": 2, "steps": 80, "window": 20}}
    (tmp_path / "good.toml").write_bytes(to_toml(table))
    assert _run(["sweep", "good.toml", "--dry-run", "--workers", "3"]) == (0, "")
    alone = capsys.readouterr().out
    assert "16 cells, 2 runs of 80 steps each" in alone
    assert "tasks: 2, the longest a few seconds" in alone
    for name, entry in (("made-up", made_up), ("tiny", lambda _: from_sweep(parse_sweep(table)))):
        monkeypatch.setitem(EXPERIMENTS, name, entry)
    assert _run(["reproduce", "made-up", "tiny", "--dry-run", "--workers", "3"]) == (0, "")
    both = capsys.readouterr().out
    assert "tasks: 8, " in both
    assert "made-up: 6 tasks, " in both
    for words in ("GB for each worker; results: ", " for 3, to a factor", "nothing was written"):
        assert words in alone
        assert words in both
    assert [path.name for path in tmp_path.iterdir()] == ["good.toml"]


def test_failed_tasks_are_a_line_each_and_exit_status_3(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "made-up", broken)
    status, words = _run(["reproduce", "made-up", "--out", str(tmp_path / "out")])
    assert status == 3
    assert words.startswith("3 tasks failed, first made-up, task 1: ZeroDivisionError: place 1")
    said = capsys.readouterr().err.splitlines()
    assert said[-3:] == [
        f"made-up, task {n}: ZeroDivisionError: place {n} is odd" for n in (1, 3, 5)
    ]


def broken(scale: str):
    return replace(made_up(scale), compute=break_odd)
