"""Stores by URL: the same bytes as in a folder, whatever the service does, and one sentence."""

from __future__ import annotations

import importlib
import os
import pickle
import socket
import sys
from pathlib import Path

import pytest

import flaky_s3
from made_up_experiment import made_up
from resonax.cli.app import _run
from resonax.core.errors import ArgumentError, StoreError
from resonax.paper.catalogue import EXPERIMENTS
from resonax.store import (
    Layout,
    Remote,
    Store,
    as_location,
    check_reachable,
    file_names,
    locations,
    open_store,
    read_files,
    replacing,
    write_files,
)
from resonax.store.locations import create_file
from test_store import COORDS, SPECIFICATION, VARIABLES, VERSIONS, part, refused
from test_store import fill as fill_store

LAYOUT = Layout(COORDS, {"momentum": 3, "period": 11}, VARIABLES)  # of four tasks


def fill(path, tasks=None, **changes) -> Store:
    return fill_store(path, tasks, layout=LAYOUT, **changes)


def forget_connections() -> None:
    """Make connections anew, as the environment is another."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The store in a folder."""
    return fill(tmp_path_factory.mktemp("whole") / "x.zarr").path


@pytest.fixture(scope="module")
def server():
    with flaky_s3.serving() as (address, faults), pytest.MonkeyPatch.context() as patch:
        for name, value in flaky_s3.environment(address).items():
            patch.setenv(name, value)
        forget_connections()
        yield faults
    forget_connections()


@pytest.fixture(params=["memory", "s3"])
def place(request, tmp_path) -> Remote:
    if request.param == "s3":
        request.getfixturevalue("server")
        return as_location(f"s3://bucket/{tmp_path.name}")
    return as_location(f"memory://{tmp_path.name}")


def files(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


def same(place: Remote, folder: Path) -> bool:
    """Whether a URL holds the files of a folder, and no others."""
    wanted = files(folder)
    names = {name.partition("/")[0] for name in wanted}
    assert set(file_names(place)) == names
    for name in names - {"zarr.json"}:
        inner = {key.partition("/")[2] for key in wanted if key.startswith(f"{name}/")}
        assert set(file_names(place / name)) == inner
    return read_files(place, wanted) == wanted


def test_a_url_holds_the_files_of_a_folder(place, whole):
    place = place / "deep" / "x.zarr"
    assert not place.exists()
    refused("x.zarr is not there", open_store, place)
    store = pickle.loads(pickle.dumps(fill(place, [])))
    tasks = store.pending()
    assert len(tasks) == 4
    for task in tasks[::2]:
        store.write(task, part(task))
    assert store.is_finished(tasks[2])
    assert not store.is_finished(tasks[1])
    assert store.marked() == {task.number for task in tasks[::2]}
    refused("2 of its 4 tasks are missing", open_store, str(place))
    refused(r"begun with jax 1 \(here is 2\)", fill, place, versions=VERSIONS | {"jax": "2"})
    refused("made with optimizer.lr = 0.01", fill, place, specification={"optimizer": {"lr": 1}})
    other = Store.at(place, LAYOUT, SPECIFICATION | {"seed": 1}, VERSIONS)
    refused("begun with another specification", other.write, tasks[1], part(tasks[1]))
    # What a service lost, and what changed in it, is made again.
    damaged = {"steps/c.1.0": b"\0" * 268, "tasks/0.json": b"{", "short/zarr.json": b"{}"}
    write_files(place, damaged)
    refused("the metadata of .* are damaged", open_store, place)
    assert [task.number for task in fill(place, []).pending()] == [0, 1, 2, 3]
    fill(place)
    assert same(place, whole)
    assert open_store(str(place)).identical(open_store(whole))
    store.remove()
    assert not place.exists()


def test_the_first_file_decides_and_the_rest_follows(place, whole):
    """Of two that make a store at once one does; a kill after the first file loses nothing."""
    place = place / "x.zarr"
    assert create_file(place, "zarr.json", (whole / "zarr.json").read_bytes())
    assert not create_file(place, "zarr.json", b"other")
    refused("made with optimizer.lr", fill, place, specification={"optimizer": {"lr": 1}})
    assert file_names(place) == ["zarr.json"]
    fill(place)
    assert same(place, whole)


def test_what_is_no_store_is_left_alone(place):
    write_files(place / "mine", {"notes.txt": b"mine"})
    refused("mine is not a store of results", fill, place / "mine")
    assert file_names(place / "mine") == ["notes.txt"]


def test_a_store_of_another_version_is_left_alone(place):
    store = fill(place / "x.zarr", []).path
    root = read_files(store, ["zarr.json"])["zarr.json"]
    write_files(store, {"zarr.json": root.replace(b"resonax store 4", b"resonax store 5")})
    for action in (fill, open_store):
        refused(r"was written by another resonax \(resonax store 5", action, store)
    write_files(store, {"zarr.json": root})
    assert fill(store).complete()


def test_pages_and_pictures_go_to_a_url(place):
    page = place / "figures" / "page.html"
    with replacing(page) as fresh:
        fresh.write_text("half")
    with pytest.raises(ZeroDivisionError), replacing(page) as fresh:
        fresh.write_text(str(1 / 0))
    assert page.read_bytes() == b"half"
    assert page.with_suffix(".svg").name == "page.svg"
    assert page.parent.parent == place
    with pytest.raises(FileNotFoundError):
        page.with_suffix(".svg").read_bytes()


def test_a_reproduction_goes_to_a_url_and_is_finished_there(server, monkeypatch, capsys):
    monkeypatch.setitem(EXPERIMENTS, "made-up", made_up)
    place = as_location("s3://bucket/paper")
    for more, done in ((["--shard", "2/2"], "3 of 6"), ([], "6 of 6"), ([], "6 of 6")):
        assert _run(["reproduce", "made-up", "--out", str(place), *more]) == (0, "")
        assert _run(["status", str(place)]) == (0, "")
        assert f"made-up: {done} tasks marked done" in capsys.readouterr().out
    assert {*file_names(place)} == {"claims.json", "claims.md", "figures", "report.html", "results"}
    assert {*file_names(place / "figures")} == {
        f"made-up{ending}" for ending in (".png", ".svg", "-dark.png")
    }
    assert b"never-above-one" in (place / "report.html").read_bytes()


@pytest.mark.slow
def test_a_server_that_fails_costs_nothing(server, whole, monkeypatch):
    """Every third request is refused, answered with an error after it was done, late or cut off."""
    monkeypatch.setattr(server, "share", 0.33)
    monkeypatch.setattr(server, "late", 0.05)
    place = as_location("s3://bucket/flaky/x.zarr")
    written = []
    write = Store.write

    def watch(self, task, values):
        assert not self.is_finished(task)
        written.append(task.number)
        write(self, task, values)

    monkeypatch.setattr(Store, "write", watch)
    fill(place)
    assert fill(place).complete()
    assert written == list(range(4))
    monkeypatch.setattr(server, "share", 0.0)
    assert same(place, whole)
    assert {"500", "503", "500 when done", "late", "cut off"} < set(server.made)


def test_bad_places_are_refused_in_a_sentence(server, monkeypatch):
    for url, words in (
        ("gopher://x/y", "is no location that fsspec knows"),
        ("s3://", "names no bucket: write s3://BUCKET/FOLDER"),
    ):
        with pytest.raises(ArgumentError, match=words):
            as_location(url)
    for action in (check_reachable, fill, open_store):
        refused("^s3://nobucket does not exist: make it", action, as_location("s3://nobucket/x"))
    refused(
        r"^webhdfs:// could not be used \(.*'host'\)", check_reachable, as_location("webhdfs:///b")
    )
    # A server that takes connections and says nothing.
    with monkeypatch.context() as patch, socket.socket() as silent:
        patch.setattr(locations, "_FIRST_ANSWER", 0.3)
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        for address in (f"http://127.0.0.1:{port}", "http://127.0.0.1:9"):
            patch.setenv("AWS_ENDPOINT_URL", address)
            forget_connections()
            with pytest.raises(StoreError, match="s3://bucket does not answer as it should"):
                check_reachable(as_location("s3://bucket/x"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    forget_connections()
    with pytest.raises(StoreError, match="s3://bucket needs credentials"):
        check_reachable(as_location("s3://bucket/x"))
    forget_connections()


def test_what_is_not_installed_is_named(monkeypatch):
    importlib.import_module("fsspec.registry")
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ArgumentError, match=r"pip install 'resonax\[cluster\]'"):
        as_location("s3://bucket/x")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ArgumentError, match=r"needs fsspec: pip install 'resonax\[cluster\]'"):
        as_location("memory://x")
