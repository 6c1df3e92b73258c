"""One record of an experiment is all that it takes; executors and interruptions leave no trace."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import resonax as rx
from made_up_experiment import compute, made_up
from resonax.cli.app import _run
from resonax.paper.catalogue import EXPERIMENTS, IN_PARTS, catalogue
from resonax.run.executor import Futures, Lost, Serial
from resonax.run.given import as_executor
from resonax.run.processes import worker_processes
from resonax.spec.sweep_checks import parse_sweep
from resonax.store import Variable
from resonax.sweeps.computation import Computation
from resonax.sweeps.experiment import Experiment, Part, from_sweep
from resonax.sweeps.jobs import Job, TasksFailed
from resonax.sweeps.runner import run_experiments
from resonax.sweeps.sharing import schedule, shard_tasks
from test_experiments import changed, tree


@pytest.mark.usefixtures("quick_pictures")
def test_a_figure_is_added_by_its_record_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "made-up", made_up)
    assert _run(["reproduce", "made-up", "--out", "out"]) == (0, "")
    assert "1 of the paper's 15 figures" in capsys.readouterr().err
    out = tmp_path / "out"
    dataset = rx.open_store(out / "results" / "made-up.zarr")
    np.testing.assert_array_equal(dataset.height, np.sin(np.arange(6.0)))
    assert dataset.attrs["unit"] == "m"
    (claim,) = json.loads((out / "claims.json").read_text())
    assert (claim["id"], claim["holds"]) == ("never-above-one", True)
    assert (out / "figures" / "made-up.svg").stat().st_size > 1000
    page = (out / "report.html").read_text()
    for words in ("A sine", "Drawn at the smoke scale.", "never-above-one"):
        assert words in page


@contextmanager
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield Futures(pool, 2)


@contextmanager
def serial():
    yield Serial()


@contextmanager
def dask_workers():
    """A worker of Dask in a process of its own, which finds this file."""
    import dask
    from distributed import Client, LocalCluster

    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"distributed.nanny.pre-spawn-environ.PYTHONPATH": path}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield as_executor(client)


EXECUTORS = {
    "serial": serial,
    # One, as of Dask: tests/test_workers.py has several, and what is forked here.
    "processes": lambda: worker_processes(1),
    "forked": lambda: worker_processes(2, ["resonax.sweeps.runner"]),
    "futures": threads,
    "dask": dask_workers,
}


@pytest.mark.parametrize("name", EXECUTORS)
def test_every_executor_gives_the_same_bytes_and_tells_of_its_progress(tmp_path, name):
    run_experiments([made_up("smoke")], tmp_path / "calm", seed=3)
    shares, done = [], []
    with EXECUTORS[name]() as executor:
        (outcome,) = run_experiments(
            [made_up("smoke")],
            tmp_path / name,
            seed=3,
            executor=executor,
            progress=lambda _, share: shares.append(share),
            done=done.append,
        )
    assert outcome.seconds is not None
    assert tree(tmp_path / name) == tree(tmp_path / "calm")
    assert sum(shares) == pytest.approx(1.0)
    assert done == ["made-up"]


def tasks_begun(workers, seconds, groups):
    """Return the tasks of each job in the order in which a number of workers begins them."""

    class Noting(Serial):
        def run(self, function, jobs, advance, then):
            begun.extend(job.tasks for job in jobs)
            super().run(function, jobs, advance, then)

    begun, noting = [], Noting()
    noting.workers = workers
    record = replace(made_up("smoke"), seconds=seconds, groups=groups)
    with TemporaryDirectory() as folder:
        (outcome,) = run_experiments([record], folder, seed=3, executor=noting)
        np.testing.assert_array_equal(outcome.dataset.height, np.sin(np.arange(6.0) + 3))
    return begun


def test_what_takes_long_is_begun_first_and_cut_for_many_workers():
    """A group is cut where it takes more than a worker's share; the numbers are the same."""
    groups = ((0,), (1, 2, 3), (4,), (5,))
    seconds = (1.0, 4.0, 4.0, 4.0, 20.0, 3.0)
    assert tasks_begun(1, seconds, groups) == [(4,), (1, 2, 3), (5,), (0,)]
    assert tasks_begun(4, seconds, groups) == [(4,), (1, 3), (2,), (5,), (0,)]
    assert tasks_begun(36, seconds, groups)[1:4] == [(1,), (2,), (3,)]
    assert tasks_begun(2, (0.0,) * 6, groups)  # nothing is known of how long they take


class Losing(Serial):
    """Loses a job before its first task, or after; and says so, as executors do."""

    def __init__(self, times: int, *, is_late: bool = False, is_suspect: bool = True) -> None:
        self.times, self.is_late, self.is_suspect = times, is_late, is_suspect

    def run(self, function, jobs, advance, then):
        def lose(job, tell):
            if 5 in job.tasks and self.times:
                self.times -= 1
                if self.is_late:
                    function(job.of([job.tasks[0]]), tell)
                else:
                    tell(1 / 24)  # a quarter of the first
                return Lost("gone", self.is_suspect)
            return function(job, tell)

        super().run(lose, jobs, advance, then)


@pytest.mark.parametrize(
    "executor", [Losing(2), Losing(3, is_late=True), Losing(9, is_suspect=False)]
)
def test_a_lost_job_is_given_again_without_what_it_has_stored(tmp_path, executor):
    shares, done, made = [], [], []

    def counting(region, *rest):
        made.append(region["place"].start)
        return compute(region, *rest)

    run_experiments(
        [replace(made_up("smoke"), compute=counting)],
        tmp_path / "out",
        executor=executor,
        progress=lambda _, share: shares.append(share),
        done=done.append,
    )
    assert executor.times == 0
    assert sorted(made) == list(range(6))  # none twice after its marker
    assert sum(shares) == pytest.approx(1.0)
    assert done == ["made-up"]
    run_experiments([made_up("smoke")], tmp_path / "calm")
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


def test_a_task_that_loses_its_workers_again_and_again_has_failed(tmp_path):
    with pytest.raises(TasksFailed) as error:
        run_experiments([made_up("smoke")], tmp_path / "out", executor=Losing(3))
    assert [str(one) for one in error.value.failures] == ["made-up, task 3: gone, 3 times"]
    markers = tmp_path / "out" / "results" / "made-up.zarr" / "tasks"
    assert {path.stem for path in markers.glob("[0-9]*.json")} == {"0", "1", "2", "4", "5"}


def break_odd(region, seed, double, advance):
    if region["place"].start % 2:
        raise ZeroDivisionError(f"place {region['place'].start}\nis odd")
    return compute(region, seed, double, advance)


@pytest.mark.parametrize("name", ["serial", "futures"])
def test_tasks_that_fail_are_listed_while_the_others_are_stored(tmp_path, name):
    failing, finished = replace(made_up("smoke"), compute=break_odd), []
    with EXECUTORS[name]() as executor, pytest.raises(TasksFailed, match="3 tasks failed") as error:
        run_experiments([failing], tmp_path, executor=executor, finish=finished.append)
    assert [str(one) for one in error.value.failures] == [
        f"made-up, task {n}: ZeroDivisionError: place {n} is odd" for n in (1, 3, 5)
    ]
    assert "break_odd" in error.value.failures[0].traceback
    assert not finished
    run_experiments([made_up("smoke")], tmp_path, finish=finished.append)
    assert len(finished) == 1


def compute_slope(region, *_):
    return {"slope": np.cos(np.arange(6.0)[region["place"]])}


SUM = Variable(("panel", "momentum", "period"), "float64", {"long_name": "sum of places"})


def compute_sum(region, *_):
    rows, columns = np.arange(5.0)[:, None], np.arange(4.0)
    return {"sum": (10.0 * region["panel"].start + rows + columns)[None]}


def break_first(region, *_):
    if region["panel"].start == 0:
        raise ZeroDivisionError("first")
    return compute_sum(region)


def with_slope(scale: str) -> Experiment:
    """The same with a second variable, which is another part of each task."""
    record = made_up(scale)
    height = record.layout.variables["height"]
    layout = replace(record.layout, variables={"height": height, "slope": height})
    return replace(
        record,
        layout=layout,
        also=(Part(compute_slope, (1.0,) * 6),),
        seconds=(3.0,) * 6,
        joined=((0, 1, 2), (3, 4, 5)),
    )


class Owning(Serial):
    """Pretends that another process has a GPU; loses jobs of the part that it is told."""

    owners = 1

    def __init__(self, lost: int = -1) -> None:
        self.lost, self.begun = lost, []

    def owned(self):
        return "gpu", "pretended"

    def run(self, function, jobs, advance, then):
        def do(job, tell):
            self.begun.append((job.tasks, job.part, job.on_device))
            if job.part == self.lost and 4 in job.tasks:
                tell(1 / 24)
                return Lost("gone")
            return function(job, tell)

        super().run(do, jobs, advance, then)


@pytest.fixture
def any_device(monkeypatch):
    monkeypatch.setattr("resonax.sweeps.jobs.chosen_device", nullcontext)


@pytest.mark.usefixtures("any_device")
def test_parts_of_a_task_that_a_gpu_and_a_cpu_compute_are_stored_together(tmp_path):
    (calm,) = run_experiments([with_slope("smoke")], tmp_path / "calm", seed=3)
    np.testing.assert_array_equal(calm.dataset.slope, np.cos(np.arange(6.0)))
    shares, done, executor = [], [], Owning()
    (found,) = run_experiments(
        [with_slope("smoke")],
        tmp_path / "parts",
        seed=3,
        executor=executor,
        progress=lambda _, share: shares.append(share),
        done=done.append,
    )
    assert found.dataset.equals(calm.dataset)
    assert sum(shares) == pytest.approx(1.0)
    assert done == ["made-up"]
    on_cpu = [job for job in executor.begun if job[1] == 1]
    assert sorted(on_cpu) == [((n,), 1, False) for n in range(6)]
    on_gpu = [job for job in executor.begun if job[1] == 0]
    assert sorted(on_gpu) == [((0, 1, 2), 0, True), ((3, 4, 5), 0, True)]
    stored = [job for job in executor.begun if job[1] is None]
    assert sorted(stored) == [((n,), None, False) for n in range(6)]


@pytest.mark.usefixtures("any_device")
def test_panels_that_a_gpu_simulates_as_one_and_theory_on_it_give_the_same_bits(tmp_path):
    table = changed(
        run={"runs": 2, "steps": 40, "window": 20},
        # The loops of single panels are those of tests/test_column_parts.py.
        train={"batch": 2},
        axes__momentum__values=[0.9, 0.92, 0.94, 0.96, 0.98],
        axes__period={"values": [0.0, 20.0, 30.0, 40.0]},
        panels=[
            {"name": "one"},
            {"name": "other", "run": {"steps": 80}},
            {"name": "stronger", "process": {"amplitude": 0.75}, "train": {"reduction": "sum"}},
        ],
    )
    record = from_sweep(parse_sweep(table))
    assert record.joined == ((0, 2), (1,))
    layout = replace(record.layout, variables={**record.layout.variables, "sum": SUM})
    also = (Part(compute_sum, (1.0,) * 3, on_device=True),)
    record = replace(record, layout=layout, also=also)
    (calm,) = run_experiments([record], tmp_path / "calm")
    executor = Owning()
    (found,) = run_experiments([record], tmp_path / "joined", executor=executor)
    xr.testing.assert_equal(found.dataset, calm.dataset)
    begun = sorted(executor.begun, key=str)
    assert [job for job in begun if job[1] == 0] == [((0, 2), 0, True), ((1,), 0, True)]
    theory = [job for job in begun if job[1] == 1]
    assert sorted(n for job in theory for n in job[0]) == [0, 1, 2]
    assert all(job[2] for job in theory)
    again = Owning()  # what is missing of a group is no box: task by task
    failing = replace(record, also=(also[0]._replace(compute=break_first),))
    with pytest.raises(TasksFailed):
        run_experiments([failing], tmp_path / "again", executor=again)
    (found,) = run_experiments([record], tmp_path / "again", executor=again)
    xr.testing.assert_equal(found.dataset, calm.dataset)


def break_four(region, *rest):
    if region["place"].start == 4:
        raise ZeroDivisionError("four")
    return compute_slope(region, *rest)


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize(
    ("executor", "part", "words"),
    [
        (Owning(), break_four, "ZeroDivisionError: four"),
        (Owning(0), compute_slope, "gone, 3 times"),
        (Owning(0), break_four, "gone, 3 times"),
    ],
)
def test_a_task_of_which_a_part_fails_has_failed_once(tmp_path, executor, part, words):
    record = replace(with_slope("smoke"), also=(Part(part, (1.0,) * 6),))
    with pytest.raises(TasksFailed) as error:
        run_experiments([record], tmp_path / "out", executor=executor)
    assert [str(one) for one in error.value.failures] == [f"made-up, task 4: {words}"]
    (found,) = run_experiments([with_slope("smoke")], tmp_path / "out", executor=Owning())
    np.testing.assert_array_equal(found.dataset.slope, np.cos(np.arange(6.0)))


def test_shards_in_any_order_make_one_store_and_the_last_one_finishes_it(tmp_path):
    run_experiments([made_up("smoke")], tmp_path / "calm", seed=3)
    finished = []
    for part in (3, 1, 4, 2):
        found = run_experiments(
            [made_up("smoke")],
            tmp_path / "shards",
            seed=3,
            shard=(part, 4),
            finish=lambda _, part=part: finished.append(part),
        )
        assert len(found) == (part == 2)
    assert finished == [2]
    assert tree(tmp_path / "shards") == tree(tmp_path / "calm")


@given(
    groups=st.lists(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=9), min_size=1, max_size=6),
    parts=st.integers(1, 40),
)
def test_each_task_is_in_one_shard_and_none_takes_a_task_more_than_the_mean(groups, parts):
    seconds = tuple(itertools.chain(*groups))
    numbers = iter(range(len(seconds)))
    cut = tuple(tuple(next(numbers) for _ in group) for group in groups)
    one = replace(made_up("smoke"), groups=cut, seconds=seconds)
    shards = [shard_tasks([one], part, parts)["made-up"] for part in range(1, parts + 1)]
    assert sorted(itertools.chain(*shards)) == list(range(len(seconds)))
    least = min((time for time in seconds if time > 0), default=1.0)
    known = [max(time, least) for time in seconds]  # a task of no known length has the least
    most = max(sum(known[task] for task in shard) for shard in shards)
    assert most <= (sum(known) / parts + max(known)) * (1 + 1e-9)


SCHEDULES = {  # groups of seconds, workers, and the seconds of the pieces in their order
    "a figure of two panels": ([(153, 150), (51, 50)], 2, [153, 150, 51, 50]),
    "more than a share": ([(4, 4, 4), (1,)], 2, [8, 4, 1]),
    "a twelfth is gained": ([(5, 5), (6, 4), (1, 1)], 2, [10, 10, 1, 1]),
    "hardly anything is gained": ([(50, 50), (50, 50), (3, 3)], 2, [100, 100, 6]),
    "of unknown length": ([(0, 0), (0,)], 2, [0, 0]),
    "nothing": ([], 2, []),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_job_that_ends_last_is_cut_where_all_ends_sooner(name):
    groups, workers, wanted = SCHEDULES[name]
    seconds = tuple(float(time) for group in groups for time in group)
    numbers = iter(range(len(seconds)))
    one = Computation(replace(made_up("smoke"), seconds=seconds), Path(), 0, "cpu", False)
    jobs = [Job(one, tuple(next(numbers) for _ in group), None) for group in groups]
    pieces = schedule(jobs, workers)
    assert [piece.seconds for piece in pieces] == wanted
    assert sorted(task for piece in pieces for task in piece.tasks) == list(range(len(seconds)))


def fail_at_two(region, seed, double, advance):
    if region["place"].start == 2:
        raise KeyboardInterrupt if seed == 0 else rx.ArgumentError("two is not allowed")
    return compute(region, seed, double, advance)


@pytest.mark.parametrize(("seed", "error"), [(0, KeyboardInterrupt), (1, rx.ArgumentError)])
@pytest.mark.parametrize("name", ["serial", "futures"])
def test_what_was_finished_before_an_error_is_kept(tmp_path, name, seed, error):
    record = made_up("smoke")
    failing = replace(record, compute=fail_at_two, groups=((0,), (1,), (2,), (3, 4, 5)))
    with EXECUTORS[name]() as executor, pytest.raises(error):
        run_experiments([failing], tmp_path / "out", seed=seed, executor=executor)
    markers = tmp_path / "out" / "results" / "made-up.zarr" / "tasks"
    before = {path.name: path.stat().st_mtime_ns for path in markers.glob("[0-9]*.json")}
    assert {"0.json", "1.json"} <= before.keys()
    assert "2.json" not in before
    run_experiments([record], tmp_path / "out", seed=seed)
    assert {name: (markers / name).stat().st_mtime_ns for name in before} == before
    run_experiments([record], tmp_path / "calm", seed=seed)
    assert tree(tmp_path / "out") == tree(tmp_path / "calm")


SMALL = changed(
    run={"runs": 2, "steps": 80, "window": 20},
    axes__momentum__values=[0.9, 0.95],
    axes__period={"values": [20, 30, 40]},
    chunk=2,
)


def test_run_sweep_from_a_table_a_file_and_a_folder(tmp_path):
    shares = []
    found = rx.run_sweep(SMALL, seed=4, progress=shares.append)
    assert sum(shares) == pytest.approx(1.0)
    assert found.rate.dims == ("panel", "momentum", "period")
    Path("small.toml").write_text(
        "\n".join(f"{name} = {_toml(value)}" for name, value in SMALL.items())
    )
    stored = rx.run_sweep("small.toml", out=tmp_path / "kept", seed=4)
    xr.testing.assert_identical(found, stored)
    path = tmp_path / "kept" / "results" / "tiny.zarr"
    xr.testing.assert_identical(rx.open_store(path), stored)
    before = tree(path)
    xr.testing.assert_identical(rx.run_sweep(SMALL, out=tmp_path / "kept", seed=4), stored)
    assert tree(path) == before
    with pytest.raises(rx.StoreError, match="seed = 4, not 5"):
        rx.run_sweep(SMALL, out=tmp_path / "kept", seed=5)
    bad: list[tuple[dict[str, Any], str]] = [
        ({"processes": 0}, "processes"),
        ({"seed": -1}, "seed"),
    ]
    for settings, words in bad:
        with pytest.raises(rx.ArgumentError, match=words):
            rx.run_sweep(SMALL, **settings)
    with pytest.raises(rx.ArgumentError, match="scale"):
        rx.run_sweep(SMALL, scale="large")
    assert rx.plot_sweep(stored).axes


def _toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


@pytest.mark.slow
def test_processes_share_a_sweep_and_a_killed_one_goes_on(tmp_path):
    script = tmp_path / "script.py"
    table = json.dumps({**SMALL, "run": {"runs": 2, "steps": 80_000, "window": 20}, "chunk": 1})
    script.write_text(
        "import json, sys, resonax as rx\n"
        "if __name__ == '__main__':\n"
        f"    rx.run_sweep(json.loads({table!r}), out=sys.argv[1], processes=int(sys.argv[2]))\n"
    )

    def start(*given: str) -> subprocess.Popen:
        return subprocess.Popen([sys.executable, script, *given], cwd=tmp_path)

    assert start("calm", "1").wait() == 0
    process = start("hard", "2")
    markers = tmp_path / "hard" / "results" / "tiny.zarr" / "tasks"
    while not list(markers.glob("[0-9]*.json")):
        assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert start("hard", "2").wait() == 0
    assert tree(tmp_path / "hard") == tree(tmp_path / "calm")


def test_figures_in_parts_are_those_of_several_tasks():
    records = catalogue((), "paper")
    assert {one.id for one in records if len(one.layout.tasks()) > 1} == IN_PARTS
    assert all(len(one.seconds) == len(one.layout.tasks()) for one in records)
