"""The compilation cache: what others could have written is never run, and nothing stops for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from resonax.cli.cache import open_to_others, prune

# Compiles something twice, as two calls of a command would, and says what was kept and for whom.
CODE = """
import sys, jax
from resonax.cli.cache import keep_compiled
keep_compiled()
def double(x):
    return 2 * x
for _ in range(2):
    assert float(jax.jit(double)(21.0)) == 42
    jax.clear_caches()
print(jax.config.jax_compilation_cache_dir or "")
"""


def compile_with(**places: Path | str) -> tuple[str, list[str]]:
    """Return the folder of the cache that a new process used, and the lines it said."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("JAX_") and name not in ("XDG_CACHE_HOME", "RESONAX_CACHE")
    }
    words = [sys.executable, "-c", CODE]
    environment |= {name: str(place) for name, place in places.items()}
    found = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip(), found.stderr.splitlines()


def entries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*-cache"))


def test_what_is_compiled_is_kept_in_a_folder_for_the_user_alone(tmp_path):
    used, said = compile_with(XDG_CACHE_HOME=tmp_path)
    assert (used, said) == (str(tmp_path / "resonax" / "jax"), [])
    assert [path.name.partition("-")[0] for path in entries(tmp_path)] == ["jit_double"]
    assert Path(used).stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("place", ["resonax", "."])
def test_a_folder_that_others_can_write_to_is_not_used_and_that_is_said_once(tmp_path, place):
    (tmp_path / "resonax").mkdir()
    (tmp_path / place).chmod(0o777)
    used, said = compile_with(XDG_CACHE_HOME=tmp_path)
    assert used == ""
    assert entries(tmp_path) == []
    (sentence,) = said
    assert f"others can write to {(tmp_path / place).resolve()}" in sentence
    assert "chmod go-w" in sentence


def test_a_folder_that_the_user_names_to_jax_is_held_to_the_same(tmp_path):
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir(mode=0o700)
    shared.mkdir()
    shared.chmod(0o777)
    keep = {
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    assert compile_with(JAX_COMPILATION_CACHE_DIR=own, **keep) == (str(own), [])
    assert len(entries(own)) == 1
    used, (sentence,) = compile_with(JAX_COMPILATION_CACHE_DIR=shared, **keep)
    assert (used, entries(shared)) == ("", [])
    assert f"others can write to {shared.resolve()}" in sentence
    assert "let JAX_COMPILATION_CACHE_DIR name a folder of your own" in sentence


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner by number here")
def test_the_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    folder = tmp_path / "resonax"
    assert open_to_others(folder) is None
    folder.mkdir(mode=0o700)
    assert open_to_others(folder) is None
    another = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: another)
    assert open_to_others(folder) == folder.resolve()
    assert open_to_others(Path("/tmp/resonax-there-is-none")) is None  # others cannot replace ours


def test_a_link_does_not_hide_that_others_can_write_to_a_folder(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "open" / "resonax").symlink_to(tmp_path / "own")
    assert open_to_others(tmp_path / "open" / "resonax") == tmp_path / "open"
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert open_to_others(tmp_path / "link" / "cache") == (tmp_path / "open").resolve()


def test_damaged_entries_are_not_run_but_compiled_anew(tmp_path):
    compile_with(XDG_CACHE_HOME=tmp_path)
    (entry,) = entries(tmp_path)
    entry.write_bytes(entry.read_bytes()[:-9])
    _, said = compile_with(XDG_CACHE_HOME=tmp_path)
    assert any("Error reading persistent compilation cache entry" in line for line in said)


def test_no_lock_no_pipe_and_no_folder_stops_a_command(tmp_path):
    """Commands wait for no lock; what is in the place of the cache is done without."""
    home = tmp_path / "resonax" / "jax"
    home.mkdir(mode=0o700, parents=True)
    (tmp_path / "resonax").chmod(0o700)
    os.mkfifo(home / ".lockfile")
    assert compile_with(XDG_CACHE_HOME=tmp_path, JAX_COMPILATION_CACHE_MAX_SIZE="9999999")[1] == []
    assert len(entries(tmp_path)) == 1
    os.mkfifo(tmp_path / "pipe")
    assert compile_with(RESONAX_CACHE=tmp_path / "pipe") == ("", [])


def test_entries_that_were_not_read_for_longest_go_first(tmp_path):
    for number in range(6):
        path = tmp_path / f"{number}-cache"
        path.write_bytes(b"x" * 10)
        os.utime(path, (1e9 + number, 1e9))
    (tmp_path / "notes").write_bytes(b"x" * 100)
    prune(tmp_path, largest=35)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("3-cache", "4-cache", "5-cache", "notes")
    ]


@pytest.mark.slow
def test_a_command_says_the_same_with_the_cache_and_without(tmp_path):
    """From an empty cache, from a full one, and where there can be none."""
    line = "stability sinusoid --period 40 --lr 0.01 --momentum 0.95 --paths 8 --steps 160 --json"
    environment = {name: text for name, text in os.environ.items() if not name.startswith("JAX_")}
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    found = []
    for place in ("cache", "cache", "open"):
        run = subprocess.run(
            [sys.executable, "-m", "resonax", *line.split()],
            env={**environment, "XDG_CACHE_HOME": str(tmp_path / place)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, run.stderr
        assert len(run.stderr.splitlines()) == (place == "open")
        found.append(json.loads(run.stdout))
    assert found[0] == found[1] == found[2]
    assert found[0]["verdict"] == "converges"
