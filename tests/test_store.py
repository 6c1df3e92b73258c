"""The store: what is marked is on disk, what is not is done again, and no byte depends on luck."""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from commands import run_python
from damage import damage
from resonax.core.errors import ResonaxError, StoreError
from resonax.store import Layout, Store, Task, Variable, locked, open_store, replacing
from resonax.store.files import remove_leftovers, temporary

COORDS = {
    "momentum": np.linspace(0.5, 0.9, 5),
    "process": np.array(["iid", "sinusoïde", "square"]),
    "period": np.arange(10, 31),
}
VARIABLES = {
    "response": Variable(("momentum", "process", "period"), "float64", {"units": "1/step"}),
    "short": Variable(("period", "momentum"), "float32"),
    "steps": Variable(("momentum", "period"), "int64"),
    "diverged": Variable(("process", "momentum", "period"), "bool"),
}
CHUNKS = {"momentum": 2, "period": 2}  # neither divides its dimension
LAYOUT = Layout(COORDS, CHUNKS, VARIABLES, {"period": {"units": "steps"}})
SPECIFICATION = {"process": {"name": "square", "pieces": (1, 2)}, "optimizer": {"lr": 0.01}}
ATTRIBUTES = {"seed": 3, "title": {"short": "x", "long": "y"}}
VERSIONS = {"numpy": "2", "jax": "1"}


@functools.cache
def everything() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {name: [len(COORDS[dim]) for dim in VARIABLES[name].dims] for name in VARIABLES}
    found = {k: (9 * rng.normal(size=s)).astype(VARIABLES[k].dtype) for k, s in shapes.items()}
    found["response"].flat[:4] = np.nan, np.inf, -0.0, 1e-310
    return found


def part(task: Task) -> dict[str, np.ndarray]:
    return {
        name: values[tuple(task.region.get(dim, slice(None)) for dim in VARIABLES[name].dims)]
        for name, values in everything().items()
    }


def fill(path: Path, tasks=None, **changes) -> Store:
    given = {
        "layout": LAYOUT,
        "specification": SPECIFICATION,
        "attributes": ATTRIBUTES,
        "versions": VERSIONS,
    }
    store = Store.open(path, **(given | changes))
    for task in store.pending() if tasks is None else tasks:
        store.write(task, part(task))
    return store


def tree(path: Path) -> dict[str, bytes | None]:
    """All files and folders, hidden ones too, with what is in the files."""
    files = {str(file.relative_to(path)): file for file in path.rglob("*")}
    return {name: file.read_bytes() if file.is_file() else None for name, file in files.items()}


def refused(words: str, action, *given, **named) -> None:
    with pytest.raises(ResonaxError, match=words):
        action(*given, **named)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A folder with the finished store of a run that nothing disturbed."""
    return fill(tmp_path_factory.mktemp("whole") / "x.zarr").path.parent


def test_xarray_reads_a_finished_store_with_labels_and_no_warning(whole):
    for dataset in (xr.open_zarr(whole / "x.zarr"), open_store(whole / "x.zarr")):
        for name, values in everything().items():
            assert (dataset[name].dims, dataset[name].dtype) == (VARIABLES[name].dims, values.dtype)
            assert dataset[name].values.tobytes() == values.tobytes()  # nan and -0.0 count
        assert dataset.response.sel(process="sinusoïde").equals(dataset.response[:, 1])
        assert set(dataset.dims) == set(dataset.coords) == set(COORDS)
        assert list(dataset.process.values) == list(COORDS["process"])
        assert (dataset.period.units, dataset.response.units) == ("steps", "1/step")
        assert ATTRIBUTES.items() <= dataset.attrs.items()
        text = dataset.attrs["specification"]
        assert json.loads(text) == json.loads(json.dumps(SPECIFICATION))
        assert dataset.attrs["specification_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert open_store(whole / "x.zarr").process.dtype.kind == "U"
    assert len(list((whole / "x.zarr" / "tasks").glob("*.json"))) == 33 + 1  # and its metadata
    assert xr.open_zarr(whole / "x.zarr", consolidated=False).sizes == dataset.sizes


def test_markers_alone_say_what_is_left(tmp_path, whole):
    path = tmp_path / "deep" / "folder" / "x.zarr"
    tasks = fill(path, [], attributes=dict(reversed(ATTRIBUTES.items()))).tasks
    some = set(np.random.default_rng(1).permutation(33)[:11])
    fill(path, [task for task in tasks if task.number in some])
    # A kill between data and marker: the data are there, and count for nothing.
    (path / "tasks" / f"{some.pop()}.json").unlink()
    store = pickle.loads(pickle.dumps(fill(path, [])))
    assert [task.number for task in store.pending()] == sorted({*range(33)} - some)
    refused("not complete, 23 of its 33 tasks are missing or damaged: run", open_store, path)
    dataset = store.load(is_partial=True)
    for task in tasks:
        for name, values in part(task).items():
            empty = np.full_like(values, np.nan if values.dtype.kind == "f" else 0)
            found = dataset[name][dict(task.region)]
            np.testing.assert_array_equal(found, values if task.number in some else empty)
    fill(path, reversed(store.pending()))
    assert fill(path, attributes={"seed": 4, "new": 1}).complete()  # left as it is
    assert tree(path.parent) == tree(whole)


def test_a_part_is_read_of_much(whole):
    """Some variables, and every so many points: what the whole has there."""
    path = whole / "x.zarr"
    store, dataset = fill(path, []), open_store(path)
    assert [task.number for task in store.tasks] == list(range(33)) == list(range(len(store.tasks)))
    for most in (1, 2, 3, 5, 8, 21):
        steps = {dim: -(-size // most) for dim, size in dataset.sizes.items()}
        wanted = dataset.isel({dim: slice(None, None, step) for dim, step in steps.items()})
        assert store.load(most=most).identical(wanted)
    others = [name for name in VARIABLES if name != "steps"]
    assert store.load(["steps"], 4).identical(store.load(most=4).drop_vars(others))


def test_one_task_when_nothing_is_cut(tmp_path):
    variables = {"response": VARIABLES["response"], "mean": Variable((), "float64")}
    store = Store.open(tmp_path / "x.zarr", Layout(COORDS, {"period": 99}, variables), {}, {})
    assert list(store.tasks) == [Task(0, {})]
    assert np.isnan(store.load(is_partial=True)["mean"])  # not there yet
    store.write(store.tasks[0], {"response": everything()["response"], "mean": np.float64(3)})
    assert open_store(tmp_path / "x.zarr")["mean"] == 3


def run_and_die(path: Path, log: int, opening: int, writing: int) -> None:
    """Fill a store, and kill the own process when it has begun so many operations on files.

    Those that open the store and look what is left, and those that write tasks, are counted apart.
    """
    operations = {"open", "os.rename", "os.remove", "os.mkdir", "os.listdir", "os.scandir"}
    left = iter(range(opening))

    def watch(event: str, _: object) -> None:
        if event in operations and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    store = fill(path, [])
    pending, left = store.pending(), iter(range(writing))
    for task in pending:
        os.write(log, f"{task.number}\n".encode())
        store.write(task, part(task))


# Loads first what xarray would load at its first use, as that would count as operations.
KILLED = """
import json, os, sys
import numpy as np
import xarray as xr
from pathlib import Path
from test_store import run_and_die
xr.backends.list_engines()
xr.DataArray(np.zeros(1), dims="place").mean()
path, rounds = Path(sys.argv[1]), []
for moment in json.loads(sys.argv[2]):
    reader, writer = os.pipe()
    if not os.fork():
        run_and_die(path, writer, *moment)
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        computed = pipe.read().split()
    status = os.waitstatus_to_exitcode(os.wait()[1])
    markers = [one.stem for one in path.glob("tasks/[0-9]*.json")]
    rounds.append((status, computed, markers))
print(json.dumps(rounds))
"""


def test_killed_at_random_moments(tmp_path, whole):
    # The creation takes some 60 operations, to open and to look what is left 13, and a task 25.
    rng, never = np.random.default_rng(2), 9999
    openings = [*rng.integers(0, 55, 4).tolist(), *rng.integers(0, 10, 1).tolist()]
    moments = [(moment, never) for moment in openings]
    moments += [(never, moment) for moment in [*rng.integers(0, 120, 6).tolist(), never]]
    found = run_python(KILLED, str(tmp_path / "x.zarr"), json.dumps(moments))
    rounds = json.loads(found.stdout)
    assert [status for status, _, _ in rounds] == [-signal.SIGKILL] * 11 + [0]
    assert [len(computed) > 0 for _, computed, _ in rounds] == [False] * 5 + [True] * 7
    # What zarr was writing stays for a day, as another process may be writing it still.
    for half in (tmp_path / "x.zarr").rglob("*.partial"):
        os.utime(half, (0, 0))
    assert fill(tmp_path / "x.zarr", []).complete()
    finished = set()
    for _, computed, markers in rounds:
        assert not finished & set(computed)
        # Only the task that was being written when the process died is done again.
        assert set(markers) - finished in (set(computed), set(computed[:-1]))
        finished = set(markers)
    assert tree(tmp_path) == tree(whole)


def test_another_specification_is_refused(whole):
    for change, words in (
        ({"optimizer": {"lr": 0.02}}, "optimizer.lr = 0.01, not 0.02"),
        ({"optimizer": {}, "batch": 20}, "optimizer.lr = 0.01, not without it; no batch, not 20"),
        ({"process": {"name": "square", "pieces": [1, 3]}}, "process.pieces.1 = 2, not 3"),
        ({"process": "iid"}, 'process = {"name": "square", "pieces": [1, 2]}, not "iid"'),
        (dict.fromkeys("abcde", 1), "no a, not 1; no b, not 1; no c, not 1; and 2 more"),
    ):
        words = f"{whole}/x.zarr was made with {words}: choose another --out folder or delete it"
        change = {"specification": SPECIFICATION | change}
        refused(f"^{re.escape(words)}$", fill, whole / "x.zarr", **change)


def test_another_layout_and_what_does_not_fit_are_refused(whole):
    def other(words, coords=COORDS, chunks=CHUNKS, variables=VARIABLES):
        layout = Layout(coords, chunks, variables)
        refused(f"x.zarr was made with {words}", fill, whole / "x.zarr", layout=layout)

    other("coords.period = 21 values, not 22 values:", COORDS | {"period": np.arange(22)})
    other("chunks.period = 2, not 3:", chunks={"momentum": 2, "period": 3})
    other("no variables.more, not", variables=VARIABLES | {"more": VARIABLES["steps"]})
    other('dims.0 = "momentum", not "period"', dict(reversed(COORDS.items())))
    for words, dims in (("have the dimension momentum", ("period",)), ("differ", ("step",))):
        refused(f"must {words}", Layout, COORDS, CHUNKS, {"mean": Variable(dims, "float64")})
    refused("mean must be one of: float", Layout, COORDS, {}, {"mean": Variable((), "complex")})
    store = fill(whole / "x.zarr", [])
    task, good = store.tasks[0], part(store.tasks[0])
    refused("must have shape", store.write, store.tasks[-1], good)
    refused("d must be of type bool", store.write, task, good | {"diverged": np.zeros((3, 2, 2))})
    refused("must give response, short, steps, diverged, got nothing", store.write, task, {})
    refused("task 33 is not one of", store.write, Task(33, task.region), good)


@pytest.mark.parametrize(("name", "words"), [("ENOSPC", "free some space"), ("EROFS", "allow it")])
def test_a_disk_that_fails_costs_one_task(tmp_path, whole, monkeypatch, name, words):
    error = OSError(getattr(errno, name), "simulated")

    def fail(place, name, after, action, *given):  # root may write everywhere, hence a patch
        real, left = getattr(place, name), iter(range(after))

        def failing(*given, **named):
            if next(left, None) is None:
                raise error
            return real(*given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(place, name, failing)
            refused(f"{words}.* run the same command again; what was stored", action, *given)

    for place, name in ((Path, "mkdir"), (os, "open"), (Path, "open"), (Path, "replace")):
        fail(place, name, 0, fill, tmp_path / "x.zarr", [])
    store = fill(tmp_path / "x.zarr", [])
    for after in range(5):  # four variables and the marker
        done, task, *_ = store.pending()
        store.write(done, part(done))
        fail(Path, "replace", after, store.write, task, part(task))
        assert store.pending() == list(store.tasks[after + 1 :])
    fill(tmp_path / "x.zarr")
    assert tree(tmp_path) == tree(whole)


def test_what_is_no_store_is_left_alone_and_what_is_half_of_one_is_not(tmp_path, whole):
    refused(r"x\.zarr is not there: name a store", open_store, tmp_path / "x.zarr")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "zarr.json").write_text("{")
    zarr.create_group(tmp_path / "group", attributes={"format": "resonax store 4"})
    before = tree(tmp_path)
    for name in ("file", "folder", "group"):
        for action in (open_store, fill):
            refused(f"{name} is not a store of results: name another", action, tmp_path / name)
    assert tree(tmp_path) == before


def test_a_store_of_another_version_is_left_alone(tmp_path, whole):
    other = shutil.copytree(whole / "x.zarr", tmp_path / "x.zarr")
    (other / "tasks" / "0.json").unlink()
    text = (other / "zarr.json").read_text()
    here = r"this one has resonax store 4, zarr 3\): use that version, choose another"
    for old, new, words in (
        ("store 4", "store 1", rf"another resonax \(resonax store 1, zarr 3; {here}"),
        ("store 4", "store 5", rf"another resonax \(resonax store 5, zarr 3; {here}"),
        ('"zarr_format": 3', '"zarr_format": 4', rf"another resonax \(.* 4, zarr 4; {here}"),
    ):
        (other / "zarr.json").write_text(text.replace(old, new))
        before = tree(other)
        for action in (open_store, fill):
            refused(f"x.zarr was written by {words}", action, other)
        assert tree(other) == before


def flip(file: Path) -> None:
    """Change 64 bytes, or all there are, without changing the length."""
    data = bytearray(file.read_bytes())
    data[:64] = bytes(byte ^ 0xFF for byte in data[:64])
    file.write_bytes(data)


DAMAGE = {
    "flipped": flip,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-3]),
    "emptied": lambda file: file.write_bytes(b""),
    "removed": lambda file: file.unlink(),
    "another's": lambda file: file.write_bytes((file.parent / "c.0.1").read_bytes()),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_chunk_is_seen_and_made_again(tmp_path, whole, kind):
    path = shutil.copytree(whole / "x.zarr", tmp_path / "x.zarr")
    DAMAGE[kind](path / "steps" / "c.1.3")
    store = fill(path, [])
    (task,) = store.pending()
    assert task.region == {"momentum": slice(2, 4), "period": slice(6, 8)}
    assert task.number in store.marked()
    assert np.isnan(store.load(is_partial=True).response[dict(task.region)]).all()
    refused("1 of its 33 tasks are missing or damaged: run the command", open_store, path)
    if kind in ("flipped", "cut", "emptied"):  # other readers see it too, by zarr's own codec
        with pytest.raises(ValueError, match=r"checksum|buffer|size"):
            xr.open_zarr(path).load()
    fill(path)
    assert tree(tmp_path) == tree(whole)


@pytest.mark.parametrize("kind", ["flipped", "cut", "emptied", "removed"])
def test_a_damaged_marker_is_seen_and_made_again(tmp_path, whole, kind):
    path = shutil.copytree(whole / "x.zarr", tmp_path / "x.zarr")
    DAMAGE[kind](path / "tasks" / "5.json")
    assert [task.number for task in fill(path, []).pending()] == [5]
    fill(path)
    assert tree(tmp_path) == tree(whole)


METADATA = ["zarr.json", "tasks/zarr.json", "steps/zarr.json", "period/zarr.json", "period/c.0"]


@pytest.mark.parametrize("kind", ["flipped", "cut", "emptied", "removed"])
@pytest.mark.parametrize("name", [*METADATA, "process/c.0"])
def test_damaged_metadata_are_seen_and_mended_without_a_task_made_again(
    tmp_path, whole, name, kind, caplog
):
    path = shutil.copytree(whole / "x.zarr", tmp_path / "x.zarr")
    DAMAGE[kind](path / name)
    refused("the metadata of .* are damaged: run the command that made it again", open_store, path)
    if name != "zarr.json":
        before = tree(path)
        refused("made with optimizer.lr = 0.01", fill, path, specification={"optimizer": {"lr": 1}})
        assert tree(path) == before
    assert fill(path, []).complete()
    assert tree(tmp_path) == tree(whole)
    assert "its metadata were damaged or missing" in " ".join(caplog.messages)


def test_a_store_without_a_root_is_ours_by_its_markers_alone(tmp_path, whole):
    path = shutil.copytree(whole / "x.zarr", tmp_path / "x.zarr")
    (path / "zarr.json").unlink()
    before = tree(path)
    refused("is not a store of results", fill, path, specification={"optimizer": {"lr": 1}})
    assert tree(path) == before
    newer = VERSIONS | {"jax": "2"}
    (path / "tasks" / "0.json").unlink()
    refused(r"begun with jax 1 \(here is 2\), and 1 of its 33 tasks", fill, path, versions=newer)
    fill(path)
    assert tree(tmp_path) == tree(whole)


def test_damage_at_random_places_never_gives_other_numbers(tmp_path):
    layout = Layout(COORDS, {"momentum": 3}, VARIABLES)
    whole = fill(tmp_path / "whole" / "x.zarr", layout=layout).path
    files, numbers, rng = tree(whole), open_store(whole), np.random.default_rng(4)
    path, names = tmp_path / "x.zarr", sorted(name for name in files if files[name])
    shutil.copytree(whole, path)
    for place in range(200):
        name = names[place % len(names)]
        data = damage(files[name], rng)
        if data == files[name]:
            continue
        (path / name).write_bytes(data)
        refused("damaged", open_store, path)
        if place % 4 == 0:
            fill(path, layout=layout)
            assert open_store(path).identical(numbers)
        (path / name).write_bytes(files[name])
    fill(path, layout=layout)
    assert tree(path) == files


def test_further_coordinates_are_stored_and_compared(tmp_path):
    process = np.array(["sinusoïde", "ar2", "square"])
    layout = Layout(
        coords={"panel": np.arange(3)},
        chunks={},
        variables={"rate": Variable(("panel",), "float64")},
        labels={"kind": ("panel", process), "period": ("panel", np.array([0.1, 2.0, 3.0]))},
    )
    store = Store.open(tmp_path / "x.zarr", layout, {}, {"title": "x"})
    store.write(store.tasks[0], {"rate": np.array([1.0, np.nan, -0.0])})
    for dataset in (xr.open_zarr(store.path), open_store(store.path)):
        assert set(dataset.coords) == {"panel", "kind", "period"}
        assert list(dataset.data_vars) == ["rate"]
        assert list(dataset.kind.values) == list(process)
        assert dataset.period.values.tobytes() == layout.labels["period"][1].tobytes()
    assert "coordinates" not in open_store(store.path).attrs
    Store.open(store.path, layout, {}, {})
    other = dataclasses.replace(layout, labels={**layout.labels, "kind": ("panel", process[::-1])})
    refused("made with labels.kind.1.0 = ", Store.open, store.path, other, {}, {})
    refused(
        "made with labels.*, not without",
        Store.open,
        store.path,
        dataclasses.replace(layout, labels={}),
        {},
        {},
    )
    for labels in ({"panel": ("panel", process)}, {"kind": ("panel", process[:2])}):
        refused("must be a further coordinate", dataclasses.replace, layout, labels=labels)
    flip(store.path / "kind" / "c.0")
    refused("the metadata of .* are damaged", open_store, store.path)


def test_other_versions_do_not_go_on_where_a_run_stopped(tmp_path):
    path, newer = tmp_path / "x.zarr", VERSIONS | {"jax": "2"}
    fill(path, [])
    fill(path, Store.open(path, LAYOUT, SPECIFICATION, {}, VERSIONS).tasks[:20])
    words = r"begun with jax 1 \(here is 2\), and 13 of its 33 tasks are missing"
    refused(words, fill, path, versions=newer)
    worker = Store.at(path, LAYOUT, SPECIFICATION, newer)  # on another machine, say
    refused("begun with another specification or other", worker.write, *first(worker.pending()))
    seeded = Store.at(path, LAYOUT, SPECIFICATION | {"seed": 1}, VERSIONS)
    assert seeded.pending() == list(seeded.tasks)
    refused("begun with another specification or other", seeded.write, *first(seeded.tasks))
    fill(path)
    assert fill(path, versions=newer).complete()  # nothing is left to compute
    assert open_store(path).attrs["versions"] == VERSIONS


def first(tasks):
    return tasks[0], part(tasks[0])


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(tmp_path):
    code = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from resonax.store.files import temporary\n"
        "with temporary(Path(sys.argv[1])) as a, temporary(Path(sys.argv[1])) as b:\n"
        "    b.write_text('half')\n"
        "    print(a, b, sep='\\n', flush=True)\n"
        "    time.sleep(120)\n"
    )
    mine = tmp_path / ".resonance.txt"
    mine.write_text("not yours")
    command = [sys.executable, "-c", code, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        temporary(tmp_path) as ours,
    ):
        theirs = [Path(process.stdout.readline().strip()) for _ in range(2)]
        remove_leftovers(tmp_path)
        assert {*theirs, ours, mine} == set(tmp_path.iterdir())
        process.kill()
        process.wait()
        remove_leftovers(tmp_path)
        assert {ours, mine} == set(tmp_path.iterdir())
    elsewhere = [tmp_path / f".resonax-0-1-{word}" for word in ("new", "old")]  # of another machine
    for path in elsewhere:
        path.touch()
    os.utime(elsewhere[1], (0, 0))
    with replacing(tmp_path / "page.html") as fresh:
        fresh.write_text("done")
    assert {elsewhere[0], mine, tmp_path / "page.html"} == set(tmp_path.iterdir())


def test_a_folder_is_held_by_one_process_and_free_when_that_is_killed(tmp_path):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from resonax.store import locked\n"
        "with locked(Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(120)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        words = f"is being written by process {process.pid} on .*: wait until that ends or choose"
        with pytest.raises(StoreError, match=words), locked(tmp_path):
            pytest.fail("it is held")
        process.kill()
        process.wait()
    for _ in range(2):
        with locked(tmp_path), pytest.raises(StoreError, match="is being written by process"):
            locked(tmp_path).__enter__()
    assert not list(tmp_path.iterdir())


def test_two_processes_on_one_folder():
    script = Path(__file__).parent / "two_processes.py"
    words = [sys.executable, script, "--trials", "3"]  # one trial of each kind
    assert subprocess.check_output(words, text=True).startswith("   3  right\n")
