"""Command lines that cannot be run get one sentence, and leave nothing behind."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from resonax.cli.app import _answer, main
from resonax.cli.parsers import whole
from resonax.core.algebra import small_product
from sweep_tables import MAP as SWEEP
from sweep_tables import to_toml

STREAM = ["stability", "sinusoid", "--period", "22", "--lr", "0.01", "--momentum", "0.9"]
MAP = ["map", "sinusoid", "--lr", "0.01", "--momentum", "0.1:0.9:2", "--period", "5:9:2"]
CHECK = ["check", "good.csv", "--target", "y", "--lr", "0.01", "--momentum", "0.9"]
NUMBERS = ("--lr", "--momentum", "--dampening", "--weight-decay", "--batch", "--seed")
OPTIONS = [
    *((STREAM, option) for option in (*NUMBERS, "--noise", "--period", "--amplitude", "--swing")),
    *((STREAM, option) for option in ("--phase", "--dim", "--paths", "--steps", "--variance")),
    *((STREAM, option) for option in ("--direction", "--basis", "--optimizer")),
    *((CHECK, option) for option in (*NUMBERS, "--epochs", "--grid", "--basis", "--optimizer")),
    *((MAP, option) for option in ("--momentum", "--period", "--batch", "--criterion")),
    (["reproduce", "problem-setting"], "--seed"),
    (["reproduce", "problem-setting"], "--scale"),
    (["sweep", "good.toml"], "--seed"),
    (["sweep", "good.toml"], "--device"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path):
    """A folder with a sweep and a data file that are good."""
    (tmp_path / "good.toml").write_bytes(to_toml(SWEEP))
    rows = np.random.default_rng(0).normal(size=(300, 2))
    np.savetxt(tmp_path / "good.csv", rows, delimiter=",", header="a,y", comments="")
    return tmp_path


def refusal(words: list[str]) -> str:
    """Return the line that a refused command prints."""
    out, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["resonax", *words])
        with pytest.raises(SystemExit) as stop:
            main()
    (said,) = errors.getvalue().splitlines()
    assert (stop.value.code, out.getvalue()) == (2, ""), said
    assert said.startswith("resonax: ")
    assert said.isprintable()
    assert len(said) < 1100
    return said


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(OPTIONS), st.text(max_size=30))
@example((STREAM, "--lr"), "9" * 400)
@example((STREAM, "--batch"), "9" * 5000)
@example((STREAM, "--period"), "\x1b[31m")
@example((STREAM, "--basis"), "polynomial:²")
@example((STREAM, "--basis"), "fourier:" + "9" * 400)
@example((CHECK, "--lr"), "\u202e1")
@example((MAP, "--momentum"), "[red]")
@example((MAP, "--period"), "1:2:" + "9" * 5000)
def test_a_value_of_any_text_gets_a_sentence(case, text):
    line, option = case
    # A good number, or a word that an option knows, is no fault; "-h" asks for help.
    assume(not is_number(text.replace(",", "")) or len(text) > 300)
    assume(text.strip() and not text.startswith("-"))
    refusal([*line, "--out", "map.nc", option, text] if line is MAP else [*line, option, text])


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=1, max_size=30))
@example("x" * 3000)
@example("[red]\x1b[31m")
def test_a_word_that_nobody_knows_gets_a_sentence(word):
    assume(word.strip() and not word.startswith("-"))
    for line in ([word], ["stability", word], ["map", word], ["reproduce", word], ["sweep", word]):
        refusal(line)
    refusal([*STREAM, "--" + word.strip("-= "), "1"])


def test_a_refusal_writes_nothing(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for line in (STREAM[:4], [*STREAM, "--colour", "red"], [*MAP, "--out", "a.txt"], CHECK[:4]):
        refusal(line)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


ABSURD = {  # numbers within their ranges that together could never end, and what is said
    (*CHECK, "--epochs", "1e12"): "--epochs must be at most 111848 for the 300 rows of good.csv",
    (*STREAM, "--steps", "2e7"): "--steps must be at most 4194304 for 64 paths, 2 weights",
    (*STREAM, "--paths", "1e12"): "--paths must be at most 65536 for 4096 steps, 2 weights",
    (*STREAM, "--paths", "6e4", "--period", "1e5"): "--paths must be at most 671 for 400000 steps",
    ("response", *STREAM[1:], "--batch", "1e9"): "--batch must be at most 262144 for dim 1",
    ("response", "good.csv", "--target", "y", *STREAM[4:], "--realisations", "0"): "at least 4",
    (*STREAM, "--dim", "300"): "--steps must be at most 1481 for 64 paths, 301 weights",
}


@pytest.mark.parametrize("line", ABSURD)
def test_sizes_that_could_never_end_are_refused(line):
    assert ABSURD[line] in refusal(list(line))


def test_memory_that_jax_does_not_get_is_said():
    error = RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 51539608064 bytes.")
    assert _answer(error) == _answer(MemoryError())


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
