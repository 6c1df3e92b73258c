"""Sweep files: what is refused, in which words, before what; and what the largest may be."""

from __future__ import annotations

import contextlib
import copy
import inspect
import json
import math
import re
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from commands import run_python
from refused_sweeps import refused_sweeps
from resonax import ArgumentError
from resonax.cli.app import _run
from resonax.core.errors import RANGES
from resonax.learners import Transform
from resonax.spec.kinds import KINDS, kinds
from resonax.spec.sweep_checks import count_weights, parse_sweep, read_sweep
from resonax.spec.sweeps import FILE_LIMITS
from resonax.store import as_location
from resonax.sweeps import cost
from resonax.sweeps.build import build_training
from resonax.sweeps.computation import Computation, Growing
from resonax.sweeps.experiment import from_sweep
from resonax.sweeps.runner import run_sweep
from resonax.sweeps.sweep import (
    compute_sweep,
    compute_theory,
    sweep_layout,
    sweep_specification,
)
from sweep_tables import MAP, NETWORK, put, to_toml

TINY = {
    "id": "tiny",
    "process": {"kind": "sinusoid"},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    "run": {"runs": 2, "steps": 80, "window": 20},
    "axes": {"momentum": {"values": [0.9, 0.95]}, "period": {"values": [20, 30]}},
}


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("table", refused_sweeps())
def test_what_cannot_be_run_gets_a_sentence(table):
    Path("a.toml").write_bytes(to_toml(table))
    assert_refused(*_run(["sweep", "a.toml"]))


def assert_refused(status: int, sentence: str) -> None:
    assert status == 2, sentence
    assert sentence
    assert "\n" not in sentence.strip()
    assert len(sentence) < 600
    assert {path.suffix for path in Path().iterdir()} == {".toml"}


def leaves(table: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in table.items():
        yield f"{path}{name}"
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")


JUNK = st.sampled_from([True, [], {}, ["a"], {"a": 1}, math.nan, math.inf, date(2020, 1, 1)])
JUNK |= st.sampled_from([10**400, "\x00", "\x1b[31m", "\u202e", "a\nb", "x" * 5000, "__class__"])


@settings(max_examples=60)
@given(st.sampled_from(list(leaves(MAP))), JUNK)
def test_an_entry_of_another_kind_gets_a_sentence_or_is_taken(path, value):
    said = "mine.toml: "
    try:
        parse_sweep(put(path, value), where="mine.toml")
    except ArgumentError as error:
        said = str(error)
    assert said.startswith("mine.toml: ")
    assert said.isprintable()
    assert len(said) < 600


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_file_that_is_spoiled_anywhere_gets_a_sentence_or_is_taken(data):
    good = to_toml(MAP)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(good))] * 2)))
    text = good[:first] + data.draw(st.binary(max_size=20)) + good[last:]
    Path("a.toml").write_bytes(text)
    with contextlib.suppress(ArgumentError):
        read_sweep(Path("a.toml"))


@pytest.mark.parametrize(
    "text",
    [
        *(b"deep = " + b"[" * deep + b"]" * deep for deep in (3000, 100_000)),
        b"deep = " + b"{a=" * 3000 + b"1" + b"}" * 3000,
        b".".join([b"a"] * 3000) + b" = 1",
        b"id = " + b"9" * 100_000,
        b"id = 'a'\r",
        "id = 'ü'".encode("latin-1"),
        "id = 'ü'".encode("utf-16"),
        b"\x00" * 100,
        b"",
    ],
)
def test_what_is_no_table_gets_a_sentence(text):
    Path("a.toml").write_bytes(text)
    assert_refused(*_run(["sweep", "a.toml"]))


def test_a_sweep_is_refused_before_jax_is_loaded():
    Path("a.toml").write_bytes(to_toml(put("optimizer.lr", -1)))
    found = run_python(
        "import sys\nfrom resonax.cli.app import _run\nstatus, _ = _run(['sweep', 'a.toml'])\n"
        "heavy = {'jax', 'optax', 'scipy', 'xarray', 'matplotlib'} & set(sys.modules)\n"
        "print(status, sorted(heavy))\n"
    )
    assert found.stdout == "2 []\n"


@pytest.mark.parametrize("table", [MAP, NETWORK])
@pytest.mark.parametrize("scale", ["paper", "smoke"])
def test_without_a_fault_they_are_good(table, scale):
    sweep_layout(parse_sweep(table, scale=scale))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("panels.1.train.nosie", 1, "panels.1.train.nosie is not a known key, use one of batch"),
        ("panels.0.run.runs", 4, "panels.0.run.runs must be that of the sweep, 3, got 4"),
        ("process.kind", "recorded", "sweep does not cover the process recorded, only iid"),
        ("optimizer.kind", "optax.lbfgs", "unknown optimizer.kind 'optax.lbfgs'"),
        ("run.steps", 2**33, "run.steps must be a multiple of 40"),
        ("run.steps", 4 * 10**18, "run.steps must be at most 100000000"),
        ("theory.points", [1, 2], "theory must have 2 to 1000 points along each axis"),
        ("panels.0.limits", {"period": [1, 2]}, "must leave a point of the axis, got 1 to 2"),
        ("title", "a\x00b", "title must be plain text, got the control character '\\x00'"),
        ("optimizer.momentum", 0.9, "optimizer.momentum is given and is an axis"),
        ("smoke.run.steps", 41, "run.steps must be a multiple of 40, got 41"),
    ],
)
def test_a_refusal_names_the_key_and_what_is_allowed(path, value, words):
    with pytest.raises(ArgumentError) as found:
        parse_sweep(put(path, value), where="mine.toml")
    assert str(found.value).startswith("mine.toml: ")
    assert words in str(found.value)


def test_files_that_are_none():
    Path("folder").mkdir()
    Path("large.toml").write_bytes(b"#" * (FILE_LIMITS["bytes"] + 1))
    for name, words in (
        ("nowhere.toml", "nowhere.toml could not be read"),
        ("folder", "folder must be a file"),
        ("/dev/null", "must be a file"),
        ("large.toml", "at most 1000000 bytes"),
    ):
        with pytest.raises(ArgumentError, match=words):
            read_sweep(Path(name))


def test_a_byte_order_mark_is_no_fault(tmp_path):
    """Editors of Windows put one in front of a text."""
    plain = 'title = "a"\nsteps = [1'
    for mark in ("", "\ufeff"):
        (tmp_path / "a.toml").write_text(mark + plain, encoding="utf-8")
        with pytest.raises(ArgumentError, match=r"a\.toml is not TOML: Unclosed array \(at end"):
            read_sweep(tmp_path / "a.toml")


def test_the_limits_are_documented():
    text = (Path(__file__).parents[1] / "docs" / "sweep.md").read_text(encoding="utf-8")
    table = text[text.index("| what | at most |") : text.index("The first line says")]
    for name, most in FILE_LIMITS.items():
        assert f"{most:,}" in table, name


# What is at its limit is allowed.


@pytest.mark.parametrize(
    "table",
    [
        {**TINY, "title": "x" * FILE_LIMITS["title"], "caption": "a\nb" * 1000},
        {**TINY, "panels": [{"name": str(number)} for number in range(FILE_LIMITS["panels"])]},
        {**TINY, "run": {"runs": 1, "steps": FILE_LIMITS["steps"], "window": 20}},
        {**TINY, "title": r"$\frac{1}$ of [red] <b>", "panels": [{"name": r"$\frac{"}]},
        put("axes.period", {"first": 1, "last": 9e4, "count": FILE_LIMITS["points"]}, TINY),
        put("axes.period", {"values": [0]}, TINY),
        put("process", {"kind": "square", "dim": 23}, TINY),
        put("train", {"batch": 10**9}, TINY),
        put("model", {"kind": "network", "hidden": [4096]}, TINY),
        put("process", {"kind": "iid", "dim": 2, "variance": [[1.0, 0.5], [0.5, 1.0]]}, TINY)
        | {"axes": {"momentum": {"values": [0.5]}, "amplitude": {"values": [0, 1e6]}}},
    ],
)
def test_what_is_at_its_limit_is_allowed(table):
    parse_sweep(table)


# The tables against what they are made into.


MODELS = {
    "linear": {"bias": False},
    "polynomial": {"degree": 3},
    "fourier": {"frequencies": [[1.0, 0.0], [0.0, 2.0]]},
    "radial": {"centers": [[0.0, 1.0]], "width": 0.5},
    "network": {"hidden": [3, 4]},
}


@pytest.mark.parametrize("kind", kinds("model", "sweep"))
def test_a_model_has_the_weights_that_are_counted(kind):
    model = {"kind": kind, **MODELS[kind]}
    assert set(MODELS[kind]) == set(KINDS["model"][kind].names)
    table = {**TINY, "process": {"kind": "sinusoid", "dim": 2}, "model": model}
    training = build_training(parse_sweep(table), 0)
    if kind == "network":
        assert count_weights(model, 2) == (2 + 1) * 3 + (3 + 1) * 4 + (4 + 1)
    else:
        assert count_weights(model, 2) == training.size


def middle(name: str) -> float:
    """Return a number that a knob may have."""
    low, high, *_ = RANGES[name]
    return math.sqrt(max(low, 1e-4) * min(high, 1.1))


@pytest.mark.parametrize("kind", kinds("optimizer", "sweep"))
def test_every_optimizer_runs_with_any_of_its_numbers_as_an_axis(kind):
    keys = KINDS["optimizer"][kind].names
    for name in keys:
        given = {key: middle(key) for key in keys if key != name}
        table = {
            **TINY,
            "optimizer": {"kind": kind, **given},
            "axes": {name: {"values": [middle(name)]}, "period": {"values": [20]}},
        }
        training = build_training(parse_sweep(table), 0)

        def step(number, training=training, name=name):  # as the engine does, for traced numbers
            transform = training.at({name: number}).optimizer.transform()
            weights = (jnp.ones(()), jnp.ones(()))
            updates, _ = transform.update(weights, transform.init(weights), weights)
            return updates

        jax.eval_shape(jax.vmap(step), jnp.ones(2))


def test_optimizers_of_optax_are_elementwise():
    """The update of a weight does not depend on the other weights."""
    transforms: dict[str, Any] = {}
    for kind in KINDS["optimizer"]:
        if not kind.startswith("optax."):
            continue
        make = getattr(optax, kind.removeprefix("optax."))
        names = [
            {"lr": "learning_rate", "beta1": "b1", "beta2": "b2"}.get(n, n)
            for n in KINDS["optimizer"][kind].names
        ]
        assert set(names) <= set(inspect.signature(make).parameters), kind
        transforms[kind] = Transform.of(make, {"lr": 0.1}).transform()

    @jax.jit  # one program in place of one for every operation of each
    def updates(weights):
        return {
            kind: transform.update(weights, transform.init(weights), weights)[0]
            for kind, transform in transforms.items()
        }

    one, two = updates(np.float32([1.0, 2.0])), updates(np.float32([1.0, -7.0]))
    for kind in transforms:
        assert float(one[kind][0]) == pytest.approx(float(two[kind][0])), kind


def test_a_table_is_stored_as_it_was_before_it_was_checked_by_kinds():
    """Stores made before are taken up again: their specification is compared as text."""
    sweep = parse_sweep(TINY | {"panels": [{"name": "a", "limits": {"period": [0, 25.5]}}]})
    assert sweep_specification(sweep) == {
        "id": "tiny",
        "process": {"kind": "sinusoid"},
        "model": {"kind": "linear"},
        "optimizer": {"kind": "heavy_ball", "lr": 0.01},
        "train": {
            "batch": 1,
            "noise": 0.0,
            "start": 1.0,
            "start_law": "uniform",
            "reduction": "mean",
            "drift": 0.0,
            "drift_direction": None,
        },
        "run": {"runs": 2, "steps": 80, "window": 20},
        "axes": {"momentum": [0.9, 0.95], "period": [20.0, 30.0]},
        "share": True,
        "chunk": 100_000,
        "panels": [
            {
                "name": "a",
                "process": {},
                "model": {},
                "optimizer": {},
                "train": {},
                "run": {},
                "limits": {"period": [0, 25.5]},
            }
        ],
        "theory": None,
    }
    assert json.dumps(sweep_specification(sweep)["panels"][0]["limits"]) == '{"period": [0, 25.5]}'


# The command.


def test_a_refused_file_leaves_no_store_and_the_corrected_one_runs(tmp_path):
    large = {**TINY, "theory": {"criteria": ["mean_square"]}}
    large["process"] = {"kind": "sinusoid", "dim": 2}
    large["model"] = {"kind": "polynomial", "degree": 6}
    Path("tiny.toml").write_bytes(to_toml(large))
    status, words = _run(["sweep", "tiny.toml"])
    assert status == 2
    assert "at most 24 weights" in words
    assert not (tmp_path / "out" / "results" / "tiny.zarr").exists()
    Path("tiny.toml").write_bytes(to_toml(TINY))
    assert _run(["sweep", "tiny.toml"]) == (0, "")
    assert float(xr.open_zarr("out/results/tiny.zarr").rate.count()) == 4


def test_theory_that_cannot_be_computed_is_missing_and_said(caplog):
    stiff = {**TINY, "theory": {"criteria": ["flow"]}}
    stiff["process"] = {"kind": "sinusoid", "amplitude": 1e6, "variance": 1e12}
    stiff["optimizer"] = {"kind": "heavy_ball", "lr": 1e6}
    parsed = parse_sweep(stiff)
    assert np.isnan(compute_theory(parsed, {}, "flow")["flow_rate"]).all()
    assert (compute_sweep(parsed, {}, seed=0)["rate"] > 0).all()
    assert "4 of 4 cells have no flow rate, as the flow is too stiff" in caplog.messages[0]


def test_a_large_sweep_needs_a_yes(monkeypatch, capsys):
    names = [{"name": r"$\frac{$"}, {"name": "[red]$_$"}]  # drawn as they are, not as mathematics
    table = {**TINY, "title": r"$\frac{$ & [red]", "panels": names}
    Path("tiny.toml").write_bytes(to_toml(table))
    monkeypatch.setattr(cost, "ASK_SECONDS", 0.0)
    status, words = _run(["sweep", "tiny.toml"])
    assert status == 2
    assert words.startswith("tiny.toml: 8 cells, 2 runs of 80 steps each: about a few seconds")
    assert words.endswith("add --yes to run it")
    assert not Path("out").exists()
    assert _run(["sweep", "tiny.toml", "--yes"]) == (0, "")
    captured = capsys.readouterr()
    assert captured.err.startswith("tiny: 8 cells, 2 runs of 80 steps each: about")
    words = r"\d of 8 cells grow, \d shrink, \d undecided \(95% confidence for all cells together"
    assert re.search(words, captured.out)


def _count(table: dict, seed: int) -> Growing:
    with tempfile.TemporaryDirectory() as folder:
        run_sweep(table, seed=seed, out=folder)
        experiment = from_sweep(parse_sweep(table))
        place = as_location(folder) / "results"
        return Computation(experiment, place, seed, "cpu", double=False).count_growing()


@pytest.mark.slow
def test_a_sweep_of_plain_sgd_on_iid_inputs_has_no_cells_that_grow():
    """Half of the estimates are above 0; of 20 sweeps hardly one may say that a cell grows."""
    table = {
        "id": "null",
        "process": {"kind": "iid"},
        "optimizer": {"kind": "sgd"},
        "train": {"noise": 0.1},
        "run": {"runs": 4, "steps": 400, "window": 40},
        "axes": {"lr": {"values": [0.02, 0.04, 0.06, 0.08]}, "batch": {"values": [1, 2]}},
    }
    found = [_count(table, seed) for seed in range(20)]
    assert sum(one.grow > 0 for one in found) <= binom.isf(1e-3, 20, 0.05)
    assert all(one.cells == 8 for one in found)
    table["run"]["runs"] = 1
    assert _count(table, 0) == Growing(0, 0, 8)  # a single run decides nothing


def test_a_sweep_over_a_resonance_has_cells_that_grow_and_cells_that_shrink():
    table = {
        **TINY,
        "train": {"batch": 20},
        "run": {"runs": 6, "steps": 2000, "window": 200},
        "axes": {"momentum": {"values": [0.9, 0.99]}, "period": {"values": [22, 200]}},
    }
    found = _count(table, 0)
    assert found == Growing(1, 3, 4)
    assert str(found) == "1 of 4 cells grow, 3 shrink, 0 undecided"


@pytest.mark.slow
def test_a_network_that_overflows_grows_and_has_diverged():
    """Also where it overflows in the first steps, over which the loss at the start is a mean."""
    table = {
        "id": "overflow",
        "process": {"kind": "sinusoid", "amplitude": 2.0, "variance": 1.0, "period": 20},
        "model": {"kind": "network", "hidden": [4]},
        "optimizer": {"kind": "heavy_ball"},
        "run": {"runs": 3, "steps": 80, "window": 20},
        "axes": {"momentum": {"values": [0.0, 0.9]}, "lr": {"values": [1e-6, 5.0, 100.0]}},
    }
    found = _count(table, 0)
    assert found.grow >= 4
    diverged = run_sweep(table).diverged.sel(panel="all", lr=[5.0, 100.0])
    assert diverged.values.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    table["run"]["runs"] = 1
    assert _count(table, 0).grow >= 4  # what overflowed needs no interval


def test_more_than_the_machine_has_is_refused(monkeypatch):
    sweep = parse_sweep(put("model.hidden", [4096] * 4, NETWORK))
    assert cost.estimate_cost(sweep).bytes > 50e9
    monkeypatch.setattr(cost, "memory", lambda: 16 * 10**9)
    with pytest.raises(ArgumentError, match=r"GB of memory, and there are 16 GB"):
        cost.check_cost(sweep)
    with pytest.raises(ArgumentError, match="add `double`"):
        cost.check_cost(parse_sweep(put("run.steps", 4_000_000, TINY)))


def test_every_sweep_of_the_paper_is_within_the_limits():
    from importlib.resources import files

    for path in (files("resonax.paper") / "specifications").iterdir():
        for scale in ("smoke", "paper"):
            found = cost.check_cost(read_sweep(Path(str(path)), scale=scale))
            assert found.bytes < cost.ASK_BYTES, path.name


def compiled_bytes(table, monkeypatch) -> int:
    """Return what the compiler says that the loop of a sweep holds."""
    from resonax.simulation import engine, network, network_cpu
    from resonax.sweeps.sweep import compute_sweep

    monkeypatch.setattr(network_cpu, "unsupported_reason", lambda *_: "the loop of jax is wanted")

    class SeenError(Exception):
        pass

    def look(function):
        def lowered(*args, **kwargs):
            compiled = jax.jit(
                function.__wrapped__, static_argnames="loop", donate_argnames="state"
            )
            raise SeenError(compiled.lower(*args, **kwargs).compile().memory_analysis())

        return lowered

    for home, name in ((engine, "step_linear"), (network, "step_networks")):
        monkeypatch.setattr(home, name, look(getattr(home, name)))
    with pytest.raises(SeenError) as seen:
        compute_sweep(parse_sweep(table), {}, seed=0)
    found = seen.value.args[0]
    both = found.argument_size_in_bytes + found.output_size_in_bytes - found.alias_size_in_bytes
    return both + found.temp_size_in_bytes


@pytest.mark.parametrize(
    "table",
    [
        put("axes.period", {"first": 20, "last": 40, "count": 100}, TINY)
        | {"run": {"runs": 10, "steps": 80, "window": 20}},
        {**copy.deepcopy(NETWORK), "axes": TINY["axes"], "optimizer": TINY["optimizer"]}
        | {"panels": [{"name": "a"}], "model": {"kind": "network", "hidden": [100, 100]}},
    ],
    ids=["linear", "network"],
)
def test_no_loop_holds_more_memory_than_was_said(table, monkeypatch):
    found = cost.estimate_cost(parse_sweep(table)).engine
    measured = compiled_bytes(table, monkeypatch)
    assert measured <= found <= 8 * measured
