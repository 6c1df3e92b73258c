"""Programs that are kept: loaded by another process without tracing, never mistaken for another."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import resonax as rx
from forks import write_errors
from resonax import program_key, programs
from resonax.cli.app import main
from resonax.cli.cache import has_programs, keep_compiled
from resonax.programs import _without_cache, keep_programs, program

LINE = "stability sinusoid --period 40 --lr 0.01 --momentum 0.95 --paths 8 --steps 160 --json"
# What takes long to load and is no part of a verdict.
HEAVY = (
    *("xarray", "pandas", "matplotlib", "optimistix", "diffrax", "optax", "jinja2", "zarr"),
    *(f"scipy.{part}" for part in ("linalg", "optimize", "signal", "stats", "interpolate")),
)
# A first call, and one of somebody who finds two entries of the first damaged.
CODE = """
import json, os, sys
from pathlib import Path
import jax, scipy.special
theirs = set(sys.modules)  # older versions of scipy load more of it
events = []
jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
from resonax.cli.app import main
main()
kept = Path(os.environ["XDG_CACHE_HOME"], "resonax", "programs").rglob("*")
for entry in sorted(filter(Path.is_file, kept), key=lambda path: path.stat().st_size)[:2]:
    entry.write_bytes(entry.read_bytes()[:-9])
print(json.dumps(events))
print("damaged", file=sys.stderr)
from resonax import programs
programs._SHELF.loaded.clear()  # as in another process
main()
print(json.dumps(list(set(sys.modules) - theirs)))
"""


def _entries(folder) -> list:
    return [path for path in folder.rglob("*") if path.is_file()]


def _hear_command(line: str) -> list[str]:
    """Return what jax tells of its work while a command runs."""
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    sys.argv = ["resonax", *line.split()]
    main()
    return events


def test_a_second_process_traces_and_lowers_nothing_and_loads_nothing_large(
    tmp_path, monkeypatch, fork
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not has_programs()
    command = [sys.executable, "-c", CODE, *LINE.split()]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    *both, modules = found.stdout.splitlines()
    half = len(both) // 2
    first, events, again = both[:half], json.loads(both[half]), both[half + 1 :]
    assert [name for name in events if "trace" in name or "mlir" in name]
    assert not {name for name in HEAVY if name in json.loads(modules)}
    (verdict,) = first
    assert json.loads(verdict)["verdict"] == "converges"
    assert again == first
    before, told = found.stderr.split("damaged\n", 1)
    assert not before
    assert len(told.splitlines()) == 1  # for both of them
    assert "damaged entries" in told
    assert has_programs()
    events = fork(_hear_command, LINE.replace("40", "41.5"))()
    assert not [name for name in events if name.startswith("/jax/core/compile")]


@pytest.fixture
def shelf(tmp_path):
    """Keep programs in a folder, and hear what went wrong."""
    told: list[str] = []
    usual = programs._SHELF.folder, programs._SHELF.tell
    keep_programs(tmp_path, told.append)
    yield tmp_path, told
    keep_programs(*usual)


def _double(tree, *, times=1):
    return {"result": times * 2 * tree["x"]}


_double.__module__ = "resonax.somewhere"  # a module of the package: its source is in the key


def test_what_is_kept_answers_as_what_was_compiled(shelf, monkeypatch):
    folder, told = shelf
    double = program(_double, static=("times",))
    for value in (3.0, np.arange(4.0), np.float32(2), 7):
        for times in (1, 5):
            expected = np.asarray(double({"x": value}, times=times)["result"])
            programs._SHELF.loaded.clear()  # as in another process
            monkeypatch.setattr(programs, "_compile", None)  # nothing is compiled again
            again = np.asarray(double({"x": value}, times=times)["result"])
            monkeypatch.undo()
            assert again.dtype == expected.dtype
            np.testing.assert_array_equal(again, expected)
            np.testing.assert_array_equal(again, 2 * times * np.asarray(value))
    assert len(_entries(folder)) == 8
    assert not told


def test_a_damaged_entry_is_made_again_and_a_folder_that_cannot_be_written_is_told(shelf):
    folder, told = shelf
    double = program(_double)
    double({"x": 1.0})
    (entry,) = _entries(folder)
    for damage in (b"", entry.read_bytes()[:100], b"x" + entry.read_bytes()[1:]):
        entry.write_bytes(damage)
        programs._SHELF.loaded.clear()
        assert double({"x": 1.0})["result"] == 2
        assert entry.read_bytes() != damage
    assert told == ["reading"] * 3
    (folder / "file").write_text("")
    keep_programs(folder / "file", told.append)
    assert double({"x": 1.0})["result"] == 2
    assert told[3:] == ["writing"]


def test_of_old_versions_the_last_few_are_kept(shelf, monkeypatch):
    folder, _ = shelf
    for number in range(6):
        program_key._surroundings.cache_clear()
        monkeypatch.setattr(program_key, "source_folder", lambda number=number: f"version {number}")
        program(_double)({"x": float(number)})
        programs._SHELF.loaded.clear()
    assert sorted(path.name for path in folder.iterdir()) == [f"version {n}" for n in range(2, 6)]
    program_key._surroundings.cache_clear()


def test_what_another_package_defines_is_compiled_but_not_kept(shelf):
    folder, _ = shelf

    @rx.value
    class Sawtooth(rx.Wave):
        name: ClassVar[str] = "sawtooth"

        def wave(self, turns):
            return 2 * (jnp.asarray(turns) % 1) - 1

    def moment(process):
        return process.moments(3.0).mean[0, 0]

    moment.__module__, moment.__qualname__ = "resonax.somewhere", "moment"
    assert abs(float(program(moment)(Sawtooth(period=8.0))) + 0.125) < 1e-6
    assert not _entries(folder)
    assert abs(float(program(moment)(rx.Sinusoid(period=12.0))) - 0.5) < 1e-6
    assert len(_entries(folder)) == 1


def _least(matrix):
    return jnp.linalg.eigvalsh(matrix)[0]


def _keep_least(folder) -> float:
    _least.__module__ = "resonax.somewhere"
    keep_programs(folder, print)
    return float(program(_least)(np.diag([3.0, 2.0])))


def test_a_program_with_lapack_is_loaded_by_a_process_that_has_not_used_it(tmp_path, fork):
    for _ in range(2):
        assert fork(_keep_least, tmp_path)() == 2.0
    assert len(_entries(tmp_path)) == 1


def test_the_key_tells_sources_machines_and_settings_apart(monkeypatch):
    def name() -> str:
        program_key._surroundings.cache_clear()
        tree = jax.tree.structure(1.0)
        return program_key.file_name(keep_programs, tree, (), {}, (), programs.current_device())

    found = {name()}
    for part in ("source_folder", "_processor"):
        monkeypatch.setattr(program_key, part, lambda: "another")
        found.add(name())
    monkeypatch.setenv("XLA_FLAGS", "--another")
    found.add(name())
    monkeypatch.undo()
    assert name() in found
    assert len(found) == 4


def _wave(x):
    return (x[:, None] * x).sum(0).cumsum()


def _keep_wave(makers) -> None:
    _wave.__module__ = "resonax.somewhere"
    write_errors("errors")
    keep_compiled()
    for make in makers:
        assert make(_wave)(np.arange(100.0))[1] == 4950.0
        programs._SHELF.loaded.clear()  # as in another process


def test_a_program_that_the_compilation_cache_holds_is_kept_whole(tmp_path, monkeypatch, fork):
    """Machine code that jax read from its own cache cannot be written again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for makers in ([jax.jit], [program, program]):
        fork(_keep_wave, makers)()
        assert Path("errors").read_text() == ""


def _total(x):
    return sum(jnp.sin(k * x) for k in range(50))


def _count_compiled(folder) -> int:
    made, compiles = [], programs._compile
    programs._compile = lambda *given: made.append(1) or compiles(*given)
    _total.__module__ = "resonax.somewhere"
    keep_programs(folder, print)
    float(program(_total)(1.0))
    return len(made)


def test_of_processes_that_need_a_program_at_once_one_compiles_it(tmp_path, fork):
    runs = [fork(_count_compiled, tmp_path) for _ in range(2)]
    assert sorted(run() for run in runs) == [0, 1]
    assert len(_entries(tmp_path)) == 1  # and no lock is left


def test_no_other_process_waits_while_a_program_runs(shelf, monkeypatch):
    held = []

    @contextmanager
    def alone(path):
        held.append(path)
        yield
        held.remove(path)

    def total(x):
        return 2 * x

    def load(*_):  # it was made while this process waited
        assert held
        return lambda x: held or 2 * x

    total.__module__, total.__qualname__ = "resonax.somewhere", "total"
    monkeypatch.setattr(programs, "_alone", alone)
    monkeypatch.setattr(programs, "_load", load)
    assert program(total)(21.0) == 42.0


def test_the_compilation_cache_is_off_until_the_last_thread_has_compiled():
    with _without_cache():
        with _without_cache():
            assert not jax.config.jax_enable_compilation_cache
        assert not jax.config.jax_enable_compilation_cache
    assert jax.config.jax_enable_compilation_cache
