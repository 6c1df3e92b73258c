"""Results are objects: all of them can be shown, drawn, saved, loaded and made plain."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import resonax as rx
from batteries import drawn, pass_battery
from damage import damage
from kept_audit import HOSTILE, kept_audit
from resonax.core import errors
from resonax.core.accessor import StabilityMap
from resonax.core.errors import StoreError
from resonax.core.objects import Result
from resonax.guards.decision_log import DecisionLog, Judged
from resonax.guards.learner import Candidate
from resonax.guards.lost_steps import LostSteps
from resonax.guards.phases import Phases
from resonax.guards.report import Event, GuardReport
from resonax.guards.state import Decision, GuardConfig
from resonax.learners import amsgrad
from resonax.store import saved
from resonax.store.files import UNSEALED, seal
from resonax.theory import (
    Branch,
    Growth,
    Interval,
    Level,
    MeanSquare,
    Orbit,
    Phase,
    Verdict,
    alternation,
)

SETTING = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr=0.01, momentum=0.97), batch=20)


def learn(weights: np.ndarray, inputs: np.ndarray, target: np.ndarray) -> np.ndarray:
    return weights - 0.1 * inputs.T @ (inputs @ weights - target)


def made(kind: str) -> Any:
    rows = np.random.default_rng(0).choice([-1.0, 1.0], size=(200, 1))
    learner = (learn, np.zeros(1), lambda weights, inputs: inputs @ weights)
    if kind == "Verdict":
        mean_square = MeanSquare(-0.1 / 3, 0.5, math.nan)
        lyapunov = Interval(-0.04, -0.05, -0.03)
        proof = rx.order_proof(SETTING)
        return Verdict(
            "converges", None, Growth(-0.02, 0.7), mean_square, lyapunov, proof, ("flow: no",)
        )
    if kind == "Probe":
        return rx.probe(learner, rows, rows[:, 0])
    if kind == "Replay":
        return rx.replay(learner, rows, rows[:, 0])
    if kind == "OrderProof":
        return rx.order_proof(rx.heavy_ball(lr=0.01, momentum=0.95), 4.0)
    if kind == "RowOrder":
        return rx.order(rows[:12], lr=0.1, momentum=0.5)
    if kind == "GuardReport":
        own, low, losses = Candidate(0.95), Candidate(0.85), (0.3, 0.4, 1.1, 0.2)
        harm = LostSteps(64, 40.0, 30.0, 50.0, 0.001, 1.5, 1.2, (0.2, 0.3))
        decision = Decision(96, "order", own, low, 64, 1.2, (0.2, 0.3), ((low, 0.24),), harm)
        event = Event(96, "setting", HOSTILE, 0.85, 21.0)
        judged = (Judged(64, 0, (0.4,)), Judged(96, 0, (1.2, 0.2, 0.3, 0.24)))
        log = DecisionLog(GuardConfig((own, low)), 128, losses, judged, (decision,))
        numbers = (low, 0.4, 2**20, 3, Phases(21.0, 336.0), 32, losses)
        return GuardReport(128, "safe", str(low), str(own), *numbers, (decision,), (event,), log, 1)
    if kind == "Response":
        quick = {"realisations": 4, "periods": 1, "length": 128, "burn_in": 128}
        return rx.response(rx.heavy_ball(0.05, 0.9), rows, rows[:, 0], sweep=[8.0], **quick)
    if kind == "Level":
        branch = Branch(0.3, 1 / 3, (0.1, 0.2), True)
        return Level(0.3, 1 / 3, 2.0, 3.5, 7.0, (2.0, 4.0), (0.15, math.nan), (branch,), ("a",))
    if kind == "Orbit":
        curve = (2.0, 4.0), (0.5, math.nan), (0.1, 0.2), (0.3, -0.1)
        return Orbit(0.5, 2.0, 0.3, 0.1, 0.4, 0.2, 1.5, 4.0, 2.0, 3.5, 7.0, *curve, ("a",))
    if kind == "Alternation":
        phases = [Phase(lambda v, h=h: h * v, np.array([[0.5 - h], [1.0]]), 11) for h in (1.0, 3.0)]
        few = {"momenta": [0.9, 0.99], "periods": [2, 22], "follow_square": True}
        return alternation(phases, rx.adam(lr=0.01), square=np.ones(1), **few)
    if kind == "Audit":
        return kept_audit()
    assert kind == "map"
    return rx.stability_map(SETTING, momentum=[0.9, 0.99], period=[22.0, 30.0]).resonax


KINDS = (
    "Verdict",
    "Probe",
    "Replay",
    "OrderProof",
    "RowOrder",
    "GuardReport",
    "Response",
    "Level",
    "Orbit",
    "Alternation",
    "Audit",
    "map",
)


def test_every_public_result_is_in_the_table():
    known = {resolve_name(path) for path in saved.RESULTS}
    assert {kind.__name__ for kind in known} == set(KINDS) - {"map"} | {"Check"}  # made elsewhere
    ours = {kind for kind in Result.__subclasses__() if kind.__module__.startswith("resonax.")}
    assert ours <= known | {StabilityMap}


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_does_what_a_result_does(kind, tmp_path):
    pass_battery(made(kind), tmp_path)


@dataclass(frozen=True, repr=False)
class Kept(Result):
    number: float
    words: tuple[str, ...]
    table: np.ndarray


# Any character but a surrogate, as `st.text` draws them, whose tables take seconds to make.
PLACES = st.integers(0, 0xD7FF) | st.integers(0xE000, 0x10FFFF)


@given(
    number=st.floats(allow_nan=False),
    words=st.lists(st.lists(PLACES.map(chr)).map("".join)),
    table=st.lists(st.floats(width=32), max_size=4),
)
def test_not_a_digit_is_lost(number, words, table):
    given_one = Kept(number, tuple(words), np.array(table, dtype=np.float32))
    text = json.dumps(saved._encode(given_one))
    again = saved._decode(Kept, json.loads(text))
    assert again.number == number
    assert math.copysign(1, again.number) == math.copysign(1, number)
    assert again.words == tuple(words)
    assert again.table.tobytes() == given_one.table.tobytes() or np.isnan(table).any()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"format": "resonax result 1", "kind": "Probe", "fields": {}}',  # without a checksum
        '{"format": "resonax result 2", "kind": "check", "fields": {}}',
        '{"format": "resonax result 2", "kind": "Probe", "fields": {}}',
        '{"format": "resonax result 0", "kind": "Probe", "fields": {}}',
        '{"format": "resonax result 2", "kind": "__doc__", "fields": {}}',
        '{"format": "resonax result 2", "kind": "Probe", "fields": %s' % ("[" * 100_000),
    ],
)
@pytest.mark.parametrize("sealed", [True, False])
def test_another_file_is_refused_in_a_sentence(content, sealed, tmp_path):
    path = tmp_path / "x.json"
    data = content.encode()
    path.write_bytes(seal(b'{"sha256": "%s",' % UNSEALED.encode() + data[1:]) if sealed else data)
    with pytest.raises(StoreError, match="or not a result that this version") as caught:
        rx.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("kind", "ending"), [("map", "nc"), ("Level", "json"), ("Probe", "json")])
def test_a_damaged_file_is_refused_in_a_sentence(kind, ending, tmp_path):
    path = made(kind).save(tmp_path / f"x.{ending}")
    whole, rng = path.read_bytes(), np.random.default_rng(3)
    for _ in range(200):
        data = damage(whole, rng)
        if data != whole:
            path.write_bytes(data)
            with pytest.raises(StoreError, match=r"x\.\w+ is damaged, or not a ") as caught:
                rx.load(path)
            assert "\n" not in str(caught.value)
    path.write_bytes(whole)
    rx.load(path)


def test_other_programs_read_a_sealed_map(tmp_path):
    found = made("map")
    path = found.save(tmp_path / "x.nc")
    with xr.open_dataset(path) as dataset:
        assert dataset.rate.equals(found._dataset.rate)
        assert len(dataset.attrs["sha256"]) == 64
    again = rx.load(path)
    assert "sha256" not in again.attrs
    assert rx.load(again.resonax.save(path)).identical(again)


def test_files_that_are_not_there_or_end_otherwise(tmp_path):
    for name in ("x.json", "x.nc"):
        with pytest.raises(StoreError, match=r"x\.(json|nc)"):
            rx.load(tmp_path / name)
    with pytest.raises(rx.ArgumentError, match=r"saved as a \.json file"):
        made("OrderProof").save(tmp_path / "x.txt")


def test_foreign_words_are_escaped_in_notebooks_and_figures():
    report = replace(made("GuardReport"), policy=HOSTILE)
    html = report._repr_html_()
    assert "<script>" not in html
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "\u202e" not in "".join(map(str, drawn(report.plot())))


ROWS = np.arange(12.0).reshape(6, 2)
ERRORS = ("ArgumentError", "DataError", "StoreError", "Interrupted")


def test_errors_are_a_family():
    for name in ERRORS:
        kind = getattr(errors, name)
        assert issubclass(kind, rx.ResonaxError)
        # None is caught where another is meant.
        assert [other for other in ERRORS if issubclass(kind, getattr(errors, other))] == [name]


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("ArgumentError", lambda _: rx.heavy_ball(lr=-1, momentum=0.5)),
        ("ArgumentError", lambda _: rx.adam(-1)),
        ("ArgumentError", lambda _: rx.adamw(0.1, weight_decay=float("nan"))),
        ("ArgumentError", lambda _: amsgrad(0.1, beta1=1)),
        ("ArgumentError", lambda _: rx.rmsprop(0.1, beta2="0.9")),
        ("ArgumentError", lambda _: rx.Training(rx.Iid(), rx.heavy_ball(0.1, 0.5), "linear")),
        ("ArgumentError", lambda _: rx.shuffled("sinusoid")),
        ("ArgumentError", lambda _: rx.check(ROWS, lr=0.1, momentum=0.5, basis="polynomial")),
        ("ArgumentError", lambda _: rx.check(ROWS, lr=0.1, momentum=0.5, basis=lambda dim: dim)),
        ("ArgumentError", lambda _: rx.load(None)),
        ("DataError", lambda folder: rx.check(folder / "no.csv", lr=0.1, momentum=0.5)),
        ("StoreError", lambda folder: rx.open_store(folder / "no.zarr")),
    ],
)
def test_each_error_is_one_sentence(kind, action, tmp_path):
    with pytest.raises(rx.ResonaxError) as caught:
        action(tmp_path)
    assert type(caught.value).__name__ == kind
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith(".")
