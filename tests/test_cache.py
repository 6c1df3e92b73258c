"""The compilation cache: what is damaged is said once, removed, and compiled anew."""

from __future__ import annotations

import sys
import warnings
import zlib
from pathlib import Path
from unittest.mock import Mock

import jax

from forks import write_errors
from resonax.cli.cache import _mend, _teller, keep_compiled

READING = "Error reading persistent compilation cache entry for '{}': error: Error -3"


def test_only_what_is_damaged_is_removed_and_it_is_said_once(tmp_path, capsys):
    whole = zlib.compress(b"program" * 100)
    names = ("jit_a-1", "jit_a-2", "jit_a_b-3", "jit_c-4")
    for name in names:
        (tmp_path / f"{name}-cache").write_bytes(whole[:-5] if name == "jit_a-2" else whole)

    def left() -> list[str]:
        return sorted(path.name.removesuffix("-cache") for path in tmp_path.iterdir())

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show = Mock()
        _mend(tmp_path, _teller(tmp_path))
        for _ in range(2):
            warnings.warn(READING.format("jit_a"), UserWarning, stacklevel=1)
            assert left() == ["jit_a-1", "jit_a_b-3", "jit_c-4"]
            (tmp_path / "jit_a-2-cache").write_bytes(b"")
        warnings.warn(READING.format("jit_c"), UserWarning, stacklevel=1)  # unpacked, yet not read
        assert left() == ["jit_a-1", "jit_a-2", "jit_a_b-3"]
        warnings.warn("something else", UserWarning, stacklevel=1)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"the compilation cache {tmp_path} had damaged entries")
    assert [str(call.args[0]) for call in show.call_args_list] == ["something else"]


def _damage_entries(home: Path) -> None:
    write_errors("errors")
    keep_compiled()
    double = jax.jit(lambda x: 2 * x)

    def entries() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in home.rglob("*-cache")}

    double(1.0)
    before = entries()
    assert before
    for damage in (lambda data: data[:0], lambda data: data[:40], lambda data: data[:-9] + data):
        for path, data in before.items():
            path.write_bytes(damage(data))
        jax.clear_caches()
        assert double(1.0) == 2
        assert entries().keys() >= before.keys()
        jax.clear_caches()
        sys.stderr.write("again\n")
        assert double(1.0) == 2


def test_jax_goes_on_with_a_damaged_entry_and_is_quiet_the_next_time(tmp_path, monkeypatch, fork):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fork(_damage_entries, tmp_path)()
    first, *rest = Path("errors").read_text().splitlines()
    assert first.endswith("had damaged entries, which are removed and compiled anew")
    assert rest == ["again"] * 3
