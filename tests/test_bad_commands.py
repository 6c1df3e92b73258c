"""Command lines that cannot be run: 300 from a generator, and what they must not leave behind."""

from __future__ import annotations

import sys

import jax
import numpy as np
import pytest

from bad_commands import CHECK, FAULTS, STREAM, bad_commands
from bad_sweeps import MAP, to_toml
from resonax.cli.app import _answer, main
from resonax.cli.parsers import whole
from resonax.core.algebra import small_product


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a sweep and a data file that are good."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.toml").write_bytes(to_toml(MAP))
    rows = np.random.default_rng(0).normal(size=(300, 2))
    np.savetxt(tmp_path / "good.csv", rows, delimiter=",", header="a,y", comments="")
    return tmp_path


def test_300_bad_command_lines_get_a_sentence_each(folder, monkeypatch, capsys):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name, line in bad_commands(300):
        monkeypatch.setattr(sys, "argv", ["resonax", *line])
        with pytest.raises(SystemExit) as stop:
            main()
        out, errors = capsys.readouterr()
        said = errors.splitlines()
        assert stop.value.code == 2, (name, line, errors)
        assert out == "", (name, line)
        assert len(said) == 1, (name, line, errors)
        assert said[0].startswith("resonax: "), name
        assert said[0].isprintable(), (name, said)
        assert len(said[0]) < 1100, name
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before, (name, line)


ABSURD = {  # numbers within their ranges that together could never end, and what is said
    (*CHECK, "--epochs", "1e12"): "--epochs must be at most 111848 for the 300 rows of good.csv",
    (*STREAM, "--steps", "2e7"): "--steps must be at most 4194304 for 64 paths, 2 weights",
    (*STREAM, "--paths", "1e12"): "--paths must be at most 65536 for 4096 steps, 2 weights",
    (*STREAM, "--paths", "6e4", "--period", "1e5"): "--paths must be at most 671 for 400000 steps",
    ("response", *STREAM[1:], "--batch", "1e9"): "--batch must be at most 262144 for dim 1",
    ("response", "good.csv", "--target", "y", *STREAM[4:], "--realisations", "0"): "at least 4",
}


@pytest.mark.parametrize("line", ABSURD)
def test_sizes_that_could_never_end_are_refused(folder, monkeypatch, capsys, line):
    monkeypatch.setattr(sys, "argv", ["resonax", *line])
    with pytest.raises(SystemExit) as stop:
        main()
    said = capsys.readouterr().err
    assert (stop.value.code, len(said.splitlines())) == (2, 1), said
    assert ABSURD[line] in said


def test_memory_that_jax_does_not_get_is_said():
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 51539608064 bytes.")
    assert _answer(error) == _answer(MemoryError())


def test_the_generator_reaches_every_kind_of_fault():
    names = {name.split(": ")[1] for name, _ in bad_commands(300)}
    assert names == {make.__name__ for make in FAULTS}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9007199254740993", 2**53 + 1),  # not a float
        ("9223372036854775807", 2**63 - 1),
        ("1e3", 1000),
        ("12.0", 12),
    ],
)
def test_whole_numbers_are_taken_exactly(text, number):
    assert whole("--seed", text) == number


def test_products_of_large_matrices_hold_nothing_larger_than_themselves():
    """As sums of products the covariances of 300 inputs over 64 phases took 14 GB."""
    pair = jax.ShapeDtypeStruct((64, 300, 300), np.float32)
    program = jax.make_jaxpr(small_product)(pair, pair)
    assert max(out.aval.size for step in program.eqns for out in step.outvars) == 64 * 300 * 300
    small = np.random.default_rng(0).normal(size=(2, 64, 64)), np.eye(65)
    wide = np.pad(small[0], ((0, 0), (0, 1), (0, 1)))
    np.testing.assert_allclose(small_product(wide, small[1]), wide, rtol=1e-6)
