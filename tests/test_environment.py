"""What a command answers where jax cannot start or nobody reads: a sentence, and its own status."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import resonax

LINE = "stability sinusoid --period 22 --amplitude 1 --lr 0.01 --momentum 0.99 --batch 100"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_PLATFORMS", "cuda"),
        ("JAX_ENABLE_X64", "maybe"),
        ("JAX_DISABLE_JIT", "1"),
        ("XLA_FLAGS", "--no_such_flag"),
    ],
)
def test_an_environment_in_which_jax_does_not_start_is_one_sentence(tmp_path, name, value):
    if name == "JAX_PLATFORMS" and os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has that platform")
    environment = {key: text for key, text in os.environ.items() if key != "XLA_FLAGS"}
    found = subprocess.run(
        [sys.executable, "-m", "resonax", *LINE.split()],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path), name: value},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (found.returncode, found.stdout) == (2, "")
    said = [line for line in found.stderr.splitlines() if "jax._src" not in line]
    assert len(said) == 1, found.stderr
    assert said[0].startswith("resonax: ")
    assert name in said[0]
    assert "unset" in said[0]


def test_output_that_nobody_reads_ends_quietly_with_its_own_status():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as pipe:
        found = subprocess.run(
            [sys.executable, "-m", "resonax", "--help"], stdout=pipe, stderr=subprocess.PIPE
        )
    assert (found.returncode, found.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("momentum", "verdict", "status"), [(0.99, "diverges", 1), (0.5, "converges", 0)]
)
def test_stability_exits_1_where_it_says_diverges(cli, momentum, verdict, status):
    line = f"{LINE} --paths 2 --steps 64".replace("0.99", str(momentum))
    for form in ("", " --json"):
        found, out, errors = cli(line + form)
        assert (found, errors) == (status, "")
        assert verdict in out


def test_the_help_says_what_the_statuses_mean(cli):
    for line in ("stability --help", "check --help"):
        assert "exit status is 1 if" in " ".join(cli(line)[1].split())
    words = cli("--help")[1]
    assert all(f" {number} " in words for number in (0, 1, 2, 3, 70, 130, 141))


def test_the_package_names_its_version():
    assert resonax.__version__ == version("resonax")
    assert not hasattr(resonax, "__verzion__")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("response sinusoid --lr 0.1 --kind switchng", "did you mean 'switching'? (one of: sin"),
        ("response sinusoid --lr 0.1 --excitation 1e300", "above 0 and at most 100, got 1e+300"),
        (
            "response sinusoid --period 22 --lr 0.1 --momentum 0 --basis fourier:",
            "--basis 'fourier:' names no numbers",
        ),
        ("stability sinusoid --period 22 --lr 0.1 --momentum 0 --basis radial:", "fourier:1,2"),
        ("check --example --basis polynomial:", "--basis 'polynomial:' names no numbers"),
    ],
)
def test_words_and_numbers_without_a_meaning_are_refused(cli, line, words):
    status, out, errors = cli(line)
    (sentence,) = errors.splitlines()
    assert (status, out) == (2, "")
    assert words in sentence
