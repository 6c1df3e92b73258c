"""The command line: good runs, and one clear sentence for everything that cannot be run."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import run_command, run_python
from resonax.store.saved import open_dataset

STREAM = "stability sinusoid --period 22 "
SINUSOID = STREAM + "--lr 0.01 --momentum 0.9 "
RECORDED = "stability recorded --lr 0.01 --momentum 0.9 --data "
MAP = "map sinusoid --lr 0.01 --momentum 0.1:0.9:2 --period 5:9:2 "
SMALL_MAP = "map iid --lr 0.01:10:2 --momentum 0:0.5:2 "
QUICK = " --paths 8"
LONG = (
    "stability square --period 20000 --amplitude 0 --swing 1 --lr 0.5575 --momentum 0.5 --batch 64 "
)

GROWTH, SQUARE, INTERVAL = {"rate", "radius"}, {"rate", "radius", "noise_floor"}, {"low", "high"}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Recordings, good and bad."""
    folder = tmp_path_factory.mktemp("recordings")
    rows = np.random.default_rng(0).normal(size=(200, 2))
    np.save(folder / "good.npy", rows)
    np.savetxt(folder / "good.csv", rows, delimiter=",", header="first,second", comments="")
    whole = (folder / "good.npy").read_bytes()
    (folder / "truncated.npy").write_bytes(whole[:500])
    (folder / "headless.npy").write_bytes(whole[:20])
    (folder / "nothing.npy").write_bytes(b"")
    spoiled = rows.copy()
    spoiled[7, 1] = np.nan
    np.save(folder / "nan.npy", spoiled)
    np.save(folder / "huge.npy", np.full((200, 1), 1e200))
    np.save(folder / "complex.npy", rows + 1j)
    np.save(folder / "words.npy", np.array(["a", "b", "c"]))
    np.save(folder / "pickled.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.save(folder / "cube.npy", np.zeros((3, 3, 3)))
    np.save(folder / "number.npy", np.array(3.0))
    for name, text in {
        "empty.csv": "",
        "header.csv": "first,second\n",
        "text.csv": "1,2\n3,oops\n5,6\n",
        "ragged.csv": "1,2\n3\n5,6\n",
        "nan.csv": "1\n2\nnan\n4\n",
        "one.csv": "1\n",
        "short.csv": "1\n2\n3\n",
        "semicolons.csv": "1;2\n3;4\n",
        "ending.dat": "1\n2\n",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    return folder


def sentence(errors: str) -> str:
    """Return what was said, after seeing that it is one line of plain text."""
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1, errors
    assert "Traceback" not in lines[0]
    assert lines[0].startswith("resonax: ")
    return lines[0]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def finite(thing) -> bool:
    if isinstance(thing, dict):
        return all(finite(part) for part in thing.values())
    return not isinstance(thing, float) or math.isfinite(thing)


def judged(text: str) -> dict:
    """Return a verdict read from JSON, after a look at its shape."""
    found = json.loads(text, parse_constant=refuse)
    known = {"flow", "map", "mean_square", "lyapunov", "verdict", "order_proof", "notes"}
    known |= {"on_these_rows"}
    assert set(found) == known
    assert {"momentum", "lr"} < set(found["order_proof"])
    assert found["verdict"] in ("converges", "diverges", "marginal")
    for name, keys in (("flow", GROWTH), ("map", GROWTH), ("mean_square", SQUARE)):
        assert found[name] is None or set(found[name]) == keys
    assert set(found["lyapunov"]) == {"rate"} | INTERVAL
    assert found["lyapunov"]["low"] < found["lyapunov"]["rate"] < found["lyapunov"]["high"]
    assert finite(found)
    return found


# What cannot be run: the command line, and words that the sentence must have.

BAD = {
    # The learner.
    "momentum above 1": (
        STREAM + "--lr 0.01 --momentum 1.2",
        "momentum|at least 0 and below 1|1.2",
    ),
    "momentum 1": (STREAM + "--lr 0.01 --momentum 1", "momentum|at least 0 and below 1"),
    "momentum negative": (STREAM + "--lr 0.01 --momentum -0.1", "momentum|at least 0 and below 1"),
    "momentum text": (STREAM + "--lr 0.01 --momentum abc", "momentum|number|abc"),
    "momentum missing": (STREAM + "--lr 0.01", "--momentum|at least 0 and below 1"),
    "lr missing": (STREAM + "--momentum 0.9", "--lr|above 0"),
    "lr zero": (STREAM + "--lr 0 --momentum 0.9", "lr|above 0|got 0"),
    "lr infinite": (STREAM + "--lr inf --momentum 0.9", "lr|above 0|inf"),
    "lr empty": (STREAM + "--lr '' --momentum 0.9", "lr|number"),
    "optimizer unknown": (SINUSOID + "--optimizer adan", "optimizer|adan|heavy_ball|nesterov|sgd"),
    "optimizer of a sweep": (
        SINUSOID + "--optimizer optax.lion",
        "for optax.lion use sweep|heavy_ball",
    ),
    "sgd with momentum": (SINUSOID + "--optimizer sgd", "--momentum|not a parameter of sgd"),
    "sgd with dampening": (
        STREAM + "--lr 0.01 --optimizer sgd --dampening 0.5" + QUICK,
        "--dampening|not a parameter of sgd",
    ),
    "nesterov with dampening": (
        SINUSOID + "--optimizer nesterov --dampening 0.5",
        "--dampening|not a parameter of nesterov",
    ),
    "dampening 1": (SINUSOID + "--dampening 1", "dampening|at least 0 and below 1"),
    "weight decay negative": (SINUSOID + "--weight-decay -1", "--weight-decay must be at least 0"),
    "batch zero": (SINUSOID + "--batch 0", "batch|at least 1|got 0"),
    "batch of a half": (SINUSOID + "--batch 2.5", "batch|whole number|2.5"),
    "batch beyond the integers": (SINUSOID + "--batch 1e19" + QUICK, "batch|at most"),
    "batch far beyond them": (SINUSOID + "--batch 1e30" + QUICK, "batch|at most"),
    "noise negative": (SINUSOID + "--noise -1", "noise|at least 0"),
    "basis unknown": (SINUSOID + "--basis splines", "basis|splines|polynomial|fourier|radial"),
    "degree zero": (SINUSOID + "--basis polynomial:0", "degree|at least 1"),
    "degree too high": (SINUSOID + "--basis polynomial:9", "degree|at most 8"),
    "degree nan": (SINUSOID + "--basis polynomial:nan", "degree|whole number|nan"),
    "frequencies nan": (SINUSOID + "--basis fourier:nan", "frequencies|finite|nan"),
    "numbers for a linear basis": (SINUSOID + "--basis linear:3" + QUICK, "basis|linear|3"),
    "width zero": (SINUSOID + "--basis radial:0 --width 0", "width|at least 1e-06"),
    # The stream.
    "process missing": ("stability --lr 0.01 --momentum 0.9", "process|sinusoid|recorded"),
    "process unknown": ("stability tides --lr 0.01", "process|tides|iid|sinusoid|square|recorded"),
    "period below a step": (
        "stability sinusoid --period 0.3 --lr 0.01 --momentum 0.9",
        "period|at least 1|0.3",
    ),
    "period of ar2 below 2": (
        "stability ar2 --period 1.5 --lr 0.01 --momentum 0.9",
        "period|at least 2|1.5",
    ),
    "period missing": ("stability square --lr 0.01 --momentum 0.9", "square|--period"),
    "period as a range": (
        "stability square --period 5:9:3 --lr 0.01 --momentum 0.9",
        "--period must be a number|resonax map",
    ),
    "amplitude negative": (SINUSOID + "--amplitude -1", "amplitude|at least 0"),
    "variance negative": (SINUSOID + "--variance -1", "variance|at least 0|-1"),
    "one variance negative": (SINUSOID + "--dim 2 --variance 1,-1", "variance|at least 0|-1"),
    "too few variances": (SINUSOID + "--dim 3 --variance 1,1", "variance|3|2"),
    "variances without dim": (SINUSOID + "--variance 1,1", "variance|dim"),
    "swing negative": (SINUSOID + "--swing -1", "swing|at least 0"),
    "innovation zero": (
        "stability ar2 --period 22 --innovation 0 --lr 0.01 --momentum 0.9",
        "innovation|at least 1e-12 and at most 0.5",
    ),
    "dim zero": (SINUSOID + "--dim 0", "dim|at least 1"),
    "direction zero": (SINUSOID + "--direction 0,0", "direction|zero"),
    "direction too long": (SINUSOID + "--dim 3 --direction 1,0", "direction|3|2"),
    "option of another process": (
        "stability iid --period 22 --lr 0.01 --momentum 0.9",
        "iid|--period|--amplitude",
    ),
    "data for a wave": (SINUSOID + "--data {files}/good.npy", "sinusoid|--data|--period"),
    # Recordings.
    "no data": ("stability recorded --lr 0.01 --momentum 0.9", "recorded|--data is missing"),
    "data that is not there": (RECORDED + "{files}/none.npy", "no file|none.npy"),
    "data that is a folder": (RECORDED + "{files}", "folder|file|{files}"),
    "data of another ending": (RECORDED + "{files}/ending.dat", ".npy|.csv|ending.dat"),
    "empty csv": (RECORDED + "{files}/empty.csv", "empty.csv is empty"),
    "csv of a header": (RECORDED + "{files}/header.csv", "no rows|at least 2"),
    "csv with text": (RECORDED + "{files}/text.csv", "holds text in row 2|oops|--features"),
    "ragged csv": (RECORDED + "{files}/ragged.csv", "ragged.csv|row 2"),
    "csv with nan": (RECORDED + "{files}/nan.csv", "missing values|--drop-missing"),
    "csv of bytes": (RECORDED + "{files}/binary.csv", "binary.csv"),
    "npy with nan": (
        RECORDED + "{files}/nan.npy",
        "missing values in column '1' (row 8)|--drop-missing",
    ),
    "npy truncated": (RECORDED + "{files}/truncated.npy", "truncated.npy"),
    "npy without its header": (RECORDED + "{files}/headless.npy", "headless.npy"),
    "npy of no bytes": (RECORDED + "{files}/nothing.npy", "nothing.npy"),
    "npy of words": (RECORDED + "{files}/words.npy", "words.npy|numbers"),
    "npy of objects": (RECORDED + "{files}/pickled.npy", "pickled.npy"),
    "npy of complex numbers": (RECORDED + "{files}/complex.npy", "complex.npy|complex"),
    "npy of three axes": (RECORDED + "{files}/cube.npy", "rows x columns|3 axes"),
    "npy of a number": (RECORDED + "{files}/number.npy", "rows x columns|0 axes"),
    "npy too large to square": (RECORDED + "{files}/huge.npy", "values above|rescale"),
    "recording of one row": (RECORDED + "{files}/one.csv", "1 row|at least 2"),
    "recording too short": (RECORDED + "{files}/short.csv", "recording has 3 rows|at least 64"),
    "recording too short for the batch": (
        RECORDED + "{files}/good.npy --batch 101",
        "200 rows|batch of 101|at least 6464|smaller batch",
    ),
    "dim of a recording": (RECORDED + "{files}/good.npy --dim 2", "recorded|--dim|--data"),
    # The estimate.
    "one path": (SINUSOID + "--paths 1", "paths|at least 2"),
    "too few steps": (SINUSOID + "--steps 3", "steps|at least 16"),
    "seed text": (SINUSOID + "--seed abc", "seed|whole number|abc"),
    "seed too large": (SINUSOID + "--seed 99999999999999999999999" + QUICK, "seed|must be"),
    "one argument too many": (SINUSOID + "extra", "extra"),
    "option without its value": ("stability sinusoid --period", "--period"),
    # Maps.
    "no file": (MAP, "--out|--plot"),
    "numbers of another ending": (MAP + "--out map.txt", "map.txt|.nc"),
    "numbers without an ending": (MAP + "--out map", "map|.nc"),
    "picture of another ending": (MAP + "--plot map.jpg", "map.jpg|.png|.svg|.pdf"),
    "folder that is not there": (MAP + "--out no/such/map.nc", "no/such/map.nc|folder|exist"),
    "folder that is a file": (MAP + "--out {files}/one.csv/map.nc", "map.nc|folder|exist"),
    "file that is a device": (MAP + "--out /dev/full", "/dev/full|.nc"),
    "name too long": (MAP + "--out " + 300 * "a" + ".nc", "name|long"),
    "one range": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9:3 --period 5 --out map.nc",
        "two|ranges|momentum",
    ),
    "no range": (
        "map sinusoid --lr 0.01 --momentum 0.9 --period 5 --out map.nc",
        "two|ranges|first:last:count",
    ),
    "three ranges": (
        "map sinusoid --lr 0.01:0.1:2 --momentum 0.1:0.9:3 --period 5:9:2 --out map.nc",
        "two|ranges|lr|momentum|period",
    ),
    "grid of no points": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9:0 --period 5:9:2 --out map.nc",
        "momentum|points|0",
    ),
    "grid of too many points": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9:2 --period 5:9:1000000000 --out map.nc",
        "period|points|1000000000",
    ),
    "range reversed": (
        "map sinusoid --lr 0.01 --momentum 0.9:0.1:3 --period 5:9:2 --out map.nc",
        "momentum|smaller to a larger|0.9:0.1:3",
    ),
    "range of two numbers": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9 --period 5:9:2 --out map.nc",
        "momentum|first:last:count|0.1:0.9",
    ),
    "range of words": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9:2 --period a:b:c --out map.nc",
        "period|first:last:count|a:b:c",
    ),
    "range of another scale": (
        "map sinusoid --lr 0.01 --momentum 0.1:0.9:2:lin --period 5:9:2 --out map.nc",
        "momentum|log|0.1:0.9:2:lin",
    ),
    "log range from 0": (
        "map sinusoid --lr 0.01 --momentum 0:0.9:2:log --period 5:9:2 --out map.nc",
        "momentum|above 0|log",
    ),
    "range up to 1": (
        "map sinusoid --lr 0.01 --momentum 0:1:3 --period 5:9:2 --out map.nc",
        "momentum|at least 0 and below 1|got 1",
    ),
    "range below a step": (
        "map sinusoid --lr 0.01 --momentum 0:0.9:3 --period 0.3:9:2 --out map.nc",
        "period|at least 1|0.3",
    ),
    "batches between whole numbers": (
        "map sinusoid --lr 0.01 --momentum 0:0.9:3 --batch 1:4:3 --period 5 --out map.nc",
        "batch|whole number|2.5",
    ),
    "range that cannot vary": (MAP + "--width 0:1:3 --out map.nc", "width|number|0:1:3"),
    "momenta of sgd": (
        "map sinusoid --optimizer sgd --lr 0.01 --momentum 0:0.9:2 --period 5:9:2 --out map.nc",
        "--momentum|not a parameter of sgd",
    ),
    "criterion unknown": (MAP + "--criterion guess --out map.nc", "criterion|guess|flow|lyapunov"),
    "flow of ar2": (
        "map ar2 --lr 0.01 --momentum 0.1:0.9:2 --period 5:9:2 --criterion flow --out map.nc",
        "criterion|lyapunov|ar2|flow",
    ),
    "flow of a single pass": (
        "map recorded --data {files}/good.npy --lr 0.01:0.1:2 --momentum 0:0.9:2 --out map.nc",
        "criterion|lyapunov|recorded",
    ),
    "batches of a recording": (
        "map recorded --data {files}/good.npy --repeat --lr 0.01 --momentum 0:0.9:2 "
        "--batch 1:4:4 --out map.nc",
        "batch|recording",
    ),
    # The paper.
    "figure unknown": ("reproduce sinusoid-mop", "figure|sinusoid-mop|sinusoid-map"),
    "scale unknown": ("reproduce --scale huge", "scale|huge|smoke|paper"),
    "device unknown": ("reproduce problem-setting --device abacus", "device|abacus|cpu|gpu"),
    "results in a file": ("reproduce problem-setting --out {files}/one.csv", "one.csv"),
    "sweep of no file": ("sweep nowhere.toml", "nowhere.toml"),
    "sweep of no toml": ("sweep {files}/one.csv", "one.csv|TOML"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_answered_by_one_sentence(cli, files, tmp_path, case):
    line, words = (text.replace("{files}", str(files)) for text in BAD[case])
    status, out, errors = cli(line)
    said = sentence(errors)
    assert status == 2
    assert out == ""
    assert not list(tmp_path.iterdir())
    missing = [word for word in words.split("|") if word not in said]
    assert not missing, f"{missing} not in: {said}"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("stabiliti", "stability"),
        ("maps", "map"),
        ("stability sinusoidd --lr 0.01 --momentum 0.9", "sinusoid"),
        ("stability Sinusoid --lr 0.01 --momentum 0.9", "sinusoid"),
        ("stability AR2 --lr 0.01 --momentum 0.9", "ar2"),
        ("stability switchng --lr 0.01 --momentum 0.9", "switching"),
        ("stability sinusoid --perod 22", "--period"),
        ("stability sinusoid --momentun 0.9", "--momentum"),
        ("stability sinusoid --weight_decay 0.1", "--weight-decay"),
        (SINUSOID + "--optimizer heavy-ball", "heavy_ball"),
        (SINUSOID + "--optimizer nesterof", "nesterov"),
        (SINUSOID + "--basis fourrier:1", "fourier"),
        (MAP + "--criterion lyapunow --out map.nc", "lyapunov"),
        (MAP + "--criterion mean-square --out map.nc", "mean_square"),
        (MAP + "--criterion MAP --out map.nc", "map"),
    ],
)
def test_a_typo_is_answered_by_the_right_word(cli, line, meant):
    status, _, errors = cli(line)
    assert status == 2
    offered = re.search(r", did you mean '?([\w-]+)'?\?", sentence(errors))
    assert offered is not None, errors
    assert offered[1] == meant
    assert "?;" not in errors


# What can be run.


def later(names, *slow):
    """Return parameters of which the slow ones are left to make test-slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in names]


GOOD = {
    "iid": ("iid --lr 0.01 --momentum 0.9", True),
    "sinusoid": ("sinusoid --period 22 --lr 0.01 --momentum 0.9", True),
    "square": ("square --period 22 --lr 0.01 --momentum 0.9", True),
    "ar2": ("ar2 --period 22 --lr 0.01 --momentum 0.9", False),
    "switching": ("switching --period 22 --lr 0.01 --momentum 0.9", False),
    "recorded": ("recorded --data {files}/good.csv --lr 0.01 --momentum 0.9", False),
    "recorded again": (
        "recorded --data {files}/good.npy --repeat --lr 0.01 --momentum 0.9",
        True,
    ),
}


def test_every_process_has_a_good_run():
    from resonax.spec.kinds import KINDS

    assert {name.split()[0] for name in GOOD} == set(KINDS["process"])


@pytest.mark.parametrize("case", later(GOOD, "iid", "square", "recorded again"))
def test_every_process_is_judged_by_name(cli, files, case):
    line, periodic = GOOD[case]
    status, out, errors = cli(f"stability {line} --json{QUICK}".replace("{files}", str(files)))
    assert (status, errors) == (0, "")
    found = judged(out)
    assert out.count("\n") == 1
    for name in ("flow", "map", "mean_square"):
        assert (found[name] is not None) == periodic
    assert found["verdict"] == "converges"
    assert found["lyapunov"]["rate"] < 0


def test_numbers_of_a_setting_that_diverges(cli):
    status, out, errors = cli(STREAM + "--lr 0.01 --momentum 0.99 --json" + QUICK)
    assert (status, errors) == (1, "")
    verdict = judged(out)
    assert verdict["verdict"] == "diverges"
    assert verdict["mean_square"]["noise_floor"] is None
    assert verdict["flow"]["rate"] == pytest.approx(0.0121, abs=1e-4)
    assert verdict["flow"]["radius"] == pytest.approx(math.exp(22 * verdict["flow"]["rate"]))
    assert verdict["lyapunov"]["low"] > 0


def test_the_verdict_in_words(cli):
    status, out, errors = cli(SINUSOID + QUICK)
    assert (status, errors) == (0, "")
    scope = "for a linear model with the squared error and 1 sample per step"
    assert out.startswith(f"converges: {scope}, the error halves every ")
    assert "(the verdict is exact, the rate is measured).\n" in out
    assert "of the square of the error" in " ".join(out.split())
    for word in ("flow", "map", "mean_square", "lyapunov", "rate per step", "radius per period"):
        assert word in out
    assert "\x1b" not in out


def test_a_narrow_terminal_shows_every_name_and_number(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    status, out, _ = cli(SINUSOID + QUICK)
    assert status == 0
    assert "…" not in out
    for name in ("flow", "map", "mean_square", "lyapunov"):
        assert any(line.startswith(name) for line in out.splitlines())


# Settings at the edge: finite numbers that agree with each other, or a sentence.
EDGES = {
    "lr tiny": SINUSOID + "--lr 1e-6 --steps 4096",  # by default many more, see test_lyapunov.py
    "lr huge": SINUSOID + "--lr 1000",
    "momentum 0": SINUSOID + "--momentum 0",
    "momentum almost 1": SINUSOID + "--momentum 0.99999 --steps 4096",  # so here
    "period of a step": SINUSOID + "--period 1",
    "period of a fraction": SINUSOID + "--period 1.5",
    "period of two steps": SINUSOID + "--period 2 --phase 1.5707963",
    "period long": SINUSOID + "--period 100000 --lr 1e-6",
    "period endless": SINUSOID + "--period 1e300",
    "inputs of 0": SINUSOID + "--amplitude 0 --variance 0",
    "inputs huge": SINUSOID + "--amplitude 1e6 --variance 1e12",
    "swing huge": SINUSOID + "--swing 14",
    "swing that makes the flow stiff": SINUSOID + "--swing 20",
    "no noise": SINUSOID + "--noise 0",
    "phase huge": SINUSOID + "--phase 1e308",
    # A long period of two halves, of which the first or the second alone diverges.
    "a long time of growth first": LONG + "--phase 0.01",
    "a long time of growth last": LONG + "--phase 3.15",
    # Just outside of a tongue, where the rate is slow: the exact criteria have it right.
    "a slow rate": SINUSOID + "--period 702 --lr 1e-5 --momentum 0.9989 --batch 64 --paths 64",
    "ar2": "stability ar2 --period 1e9 --lr 0.01 --momentum 0.9 --swing 20",
    "switching": "stability switching --period 1 --lr 1000 --momentum 0.9 --variance 0",
    "recorded": RECORDED + "{files}/good.npy --repeat --lr 20",  # products beyond all numbers
}


LONG_ONES = (
    "a long time of growth first",
    "a long time of growth last",
    "a slow rate",
    "period long",
    "swing that makes the flow stiff",
)


@pytest.mark.parametrize("case", later(EDGES, *LONG_ONES))
def test_settings_at_the_edge_give_finite_numbers_or_a_sentence(cli, files, case):
    line = EDGES[case].replace("{files}", str(files))
    status, out, errors = cli(line + " --json" + ("" if "--paths" in line else QUICK))
    if status in (0, 1):
        found = judged(out)
        assert errors == ""
        assert (status == 1) == (found["verdict"] == "diverges")
        # Jensen: almost every run grows no faster than the root mean square.
        if found["mean_square"] is not None:
            assert found["lyapunov"]["low"] <= found["mean_square"]["rate"] + 1e-6
            assert found["mean_square"]["rate"] > -1e-6 or found["verdict"] == "converges"
    else:
        assert status == 2
        assert sentence(errors)
        assert out == ""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("--basis polynomial:8 --amplitude 1000", marks=pytest.mark.slow),
        "--basis radial:-1,0,1 --width 1e-200",
        pytest.param("--direction 1e-200,1e-200", marks=pytest.mark.slow),
    ],
)
def test_a_learner_at_the_edge_gives_finite_numbers_or_a_sentence(cli, options):
    status, out, errors = cli(f"{SINUSOID}{options} --json{QUICK}")
    assert status in (0, 1, 2)
    assert sentence(errors) if status == 2 else judged(out)


# Maps.


def test_a_map_of_estimates_counts_intervals_and_says_what_is_undecided(cli):
    """At the boundary, momentum 0.9663 here, half of the estimates lie above 0."""
    axes = "--momentum 0.9663:0.9664:2 --lr 0.01:0.0101:2"
    status, out, errors = cli(
        "map sinusoid --period 22 --amplitude 0.5 --variance 1 --batch 20 "
        f"{axes} --criterion lyapunov --out map.nc"
    )
    assert (status, errors.strip()) == (0, "")
    found = open_dataset("map.nc")
    open_ones = float(((found.low <= 0) & (found.high >= 0)).mean())
    assert open_ones > 0
    assert (
        f"{float((found.low > 0).mean()):.1%} of 4 cells diverge, {open_ones:.1%} are undec" in out
    )


def test_a_map_is_written_with_labels_and_provenance(cli, tmp_path):
    status, out, errors = cli(SMALL_MAP + "--out map.nc --plot map.png")
    assert (status, errors.strip()) == (0, "")
    assert out.splitlines()[0].startswith("50.0% of 4 cells diverge; largest rate +")
    assert "lr 10" in out.splitlines()[0]
    assert "map.nc" in out.splitlines()[1]
    assert "map.png" in out.splitlines()[1]
    found = open_dataset(tmp_path / "map.nc")
    assert found.rate.dims == ("momentum", "lr")
    assert found.lr.values.tolist() == [0.01, 10.0]
    assert found.momentum.values.tolist() == [0.0, 0.5]
    assert np.isfinite(found.rate.values).all()
    assert found.rate.attrs["units"] == "1/step"
    assert found.lr.attrs == {"long_name": "step size", "symbol": "η", "units": "1"}
    assert found.attrs["criterion"] == "map"
    assert found.attrs["process"] == "iid"
    assert found.attrs["version_resonax"]
    assert json.loads(found.attrs["setting"])["process"]["variance"] == 1.0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map.nc", "map.png"]


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_map_is_drawn_in_other_formats(cli, tmp_path, ending, start):
    assert cli(f"{SMALL_MAP}--plot map.{ending}")[0] == 0
    assert (tmp_path / f"map.{ending}").read_bytes().startswith(start)


def test_batches_may_double_from_point_to_point(cli, tmp_path):
    line = "map iid --lr 0.01 --momentum 0:0.5:2 --batch 2:2048:11:log --out map.nc"
    status, _, errors = cli(line)
    assert (status, errors.strip()) == (0, "")
    batch = open_dataset(tmp_path / "map.nc").batch.values
    assert batch.tolist() == [2.0**power for power in range(1, 12)]


def test_a_name_with_brackets_is_said_as_it_is(cli, tmp_path):
    status, out, _ = cli(SMALL_MAP + "--out '[bold]map[1].nc'")
    assert status == 0
    assert (tmp_path / "[bold]map[1].nc").is_file()
    assert "[bold]map[1].nc" in out


# What goes wrong while a map is made leaves nothing behind.


def test_a_folder_that_may_not_be_written_is_seen_before_any_work(cli, monkeypatch, tmp_path):
    # Permission bits do not stop the superuser, under whom tests may run.
    def access(path, mode):
        return not mode & os.W_OK

    monkeypatch.setattr(os, "access", access)
    status, out, errors = cli(SMALL_MAP + "--out map.nc")
    assert (status, out) == (2, "")
    assert "map.nc" in sentence(errors)
    assert "written" in errors
    assert not list(tmp_path.iterdir())


def test_a_file_system_that_refuses_is_one_sentence(cli, monkeypatch, tmp_path):
    real = os.open

    def refuse(path, flags, *args, **kwargs):
        if flags & os.O_EXCL and str(tmp_path) in os.path.abspath(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    status, _, errors = cli(SMALL_MAP + "--out map.nc")
    assert status == 2
    assert "map.nc" in sentence(errors)
    assert os.strerror(errno.EROFS) in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--out map.nc", "--plot map.png"])
@pytest.mark.parametrize(
    ("error", "expected"),
    [(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 2), (KeyboardInterrupt(), 130)],
)
def test_an_old_file_survives_a_failed_write(cli, monkeypatch, tmp_path, option, error, expected):
    import xarray
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def half(thing, path, *args, **kwargs):
        Path(path).write_bytes(b"half")
        raise error

    monkeypatch.setattr(xarray.Dataset, "to_netcdf", half)
    monkeypatch.setattr(FigureCanvasAgg, "print_png", half)
    name = option.split()[1]
    (tmp_path / name).write_bytes(b"old")
    status, _, errors = cli(SMALL_MAP + option)
    assert status == expected
    assert sentence(errors)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old"}


def test_output_that_cannot_be_written_is_one_sentence(cli, monkeypatch):
    import resonax.theory

    interval = resonax.theory.Interval(-0.1, -0.2, -0.05)
    proof = resonax.order_proof(resonax.sgd(0.1), 1.0)
    verdict = resonax.theory.Verdict("converges", None, None, None, interval, proof)
    monkeypatch.setattr(resonax.theory, "verdict", lambda *_, **__: verdict)

    def write(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for option in ("", "--json"):
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "write", write)
            status, _, errors = cli(SINUSOID + option)
        assert status not in (0, 130)
        assert os.strerror(errno.ENOSPC) in sentence(errors)


def test_stores_that_are_spoiled_are_named(cli, tmp_path):
    (tmp_path / "out" / "results").mkdir(parents=True)
    for name in ("problem-setting", "theory-maps"):
        (tmp_path / "out" / "results" / f"{name}.zarr").write_text("not a store")
        status, _, errors = cli(f"reproduce {name} --out out")
        assert status == 2
        first, said = errors.splitlines()
        assert first.startswith("1 of the paper's 14 figures, smoke scale, into out")
        assert f"{name}.zarr" in sentence(said)


# End to end, as a person runs it.


def test_help_is_there_before_the_heavy_libraries(tmp_path):
    """Neither the package nor the start of the command line loads one."""
    code = (
        "import sys, resonax\n"
        "from resonax.cli.app import main\n"
        "heavy = {'jax', 'xarray', 'matplotlib', 'scipy'}\n"
        "loaded = [sorted(heavy & set(sys.modules))]\n"
        "sys.argv = ['resonax', '--help']\n"
        "status = 0\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    status = stop.code or 0\n"
        "loaded.append(sorted(heavy & set(sys.modules)))\n"
        "print('status', status, 'loaded', loaded)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.endswith("status 0 loaded [[], []]\n")
    for command in ("stability", "map", "reproduce", "sweep"):
        assert command in found.stdout


def test_a_map_from_end_to_end(tmp_path):
    line = "map sinusoid --lr 0.01 --momentum 0.9:0.99:2 --period 20:22:2 --out m.nc --plot m.png"
    found = run_command(*line.split())
    assert (found.returncode, found.stderr.strip()) == (0, "")
    assert found.stdout.splitlines()[1] == "written: m.nc, m.png"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.nc", "m.png"]
    rate = open_dataset(tmp_path / "m.nc").rate
    assert float(rate.sel(momentum=0.99, period=22)) > 0 > float(rate.sel(momentum=0.9, period=22))


@pytest.mark.parametrize(
    "line",
    [
        "stability sinusoid --period 22 --lr 0.01 --momentum 1.2",
        "stability sinusoid --swing wide",
        "stabiliti",
    ],
)
def test_a_mistake_from_end_to_end(tmp_path, line):
    found = run_command(*line.split(), COLUMNS="40")
    assert (found.returncode, found.stdout) == (2, "")
    assert sentence(found.stderr)
    assert not list(tmp_path.iterdir())


# The signal comes from inside the command, so that no clock decides.
INTERRUPTED_MAP = """
import os, signal, sys
import resonax.theory
from resonax.cli.start import main
resonax.theory.stability_map = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)
main()
"""


def test_an_interrupt_from_end_to_end(tmp_path):
    found = run_python(INTERRUPTED_MAP, *shlex.split(SMALL_MAP + "--out map.nc"))
    assert found.returncode == 128 + signal.SIGINT
    assert "interrupted" in sentence(found.stderr)
    assert not list(tmp_path.iterdir())


LOSING_MODULE = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(600):
        time.sleep(0.1)
except BaseException:
    pass
print('went on')
"""
LOSING = {
    "in the start of a module": "    import losing",
    "in a callback": """
    class Lost:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
    Lost()
    time.sleep(60)
""",
    "where it becomes another error": """
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        raise ImportError("an error while initializing the extension") from None
""",
}


@pytest.mark.parametrize("case", LOSING)
def test_an_interrupt_that_a_library_loses_ends_the_command(tmp_path, case):
    (tmp_path / "losing.py").write_text(LOSING_MODULE)
    code = (
        "import os, signal, sys, time\nimport resonax.cli.app\nfrom resonax.cli.start import main\n"
        f"def app(*args, **kwargs):\n{LOSING[case]}\n    print('went on')\n"
        "resonax.cli.app._commands = lambda: app\nmain()\n"
    )
    found = run_python(code, "reproduce")
    assert (found.returncode, found.stdout) == (128 + signal.SIGINT, "")
    assert "interrupted" in sentence(found.stderr)


@pytest.mark.parametrize("closing", ["2>&-", "1>&- 2>&-", "0<&- 1>&- 2>&-"])
def test_streams_that_a_shell_closes_are_no_trouble(tmp_path, closing):
    command = f'exec "$0" -m resonax stability sinusoid --swing wide {closing}'
    found = subprocess.run(["sh", "-c", command, sys.executable], capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (2, b"", b"")
    assert not list(tmp_path.iterdir())
