"""The logistic loss: against two nearby runs of torch, its bound, and the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import resonax as rx
from resonax.cli.app import _run
from resonax.learners import Linear, Momentum, from_torch, heavy_ball
from resonax.recordings.recording import Recording
from resonax.rows.feed import principal_axes
from resonax.rows.recursion import energy
from resonax.rows.subject import Subject


def subject(optimizer: Momentum, rows: int = 2100, batch: int = 1, epochs: int = 1) -> Subject:
    """A daily rhythm and a class that follows it: the weights leave zero."""
    rng = np.random.default_rng(3)
    x = 1.5 * np.sin(2 * np.pi * np.arange(rows) / 24) + 0.4 * rng.normal(size=rows)
    inputs = np.stack([x, rng.normal(size=rows)], axis=1).astype(np.float32)
    target = (x + 0.6 * rng.normal(size=rows) > 0.3).astype(np.float32)
    recording = Recording(inputs, target, ("x", "z"), "y", "array", (), classes=("0", "1"))
    model = principal_axes(Linear(), inputs)
    more = {"recording": recording, "epochs": epochs, "loss": "logistic"}
    return Subject(optimizer, model, batch, **more)


def torch_run(given: Subject, start: np.ndarray, **options: float) -> tuple[np.ndarray, np.ndarray]:
    """Train by torch, in 64 bits, and return the weights at the end and one step before.

    Each column of the start is a run of its own: the gradient of a sum of losses is that of each.
    """
    assert given.recording.target is not None
    phi = torch.tensor(given.model.apply(given.recording.inputs.astype(float)))
    target = torch.tensor(given.recording.target.astype(float))
    weights = torch.tensor(start, requires_grad=True)
    sgd = torch.optim.SGD([weights], **options)  # type: ignore[arg-type]
    before = start
    for step in list(range(len(phi) // given.batch)) * given.epochs:
        part = slice(step * given.batch, (step + 1) * given.batch)
        before = weights.detach().numpy().copy()
        sgd.zero_grad()
        logits = phi[part] @ weights
        wanted = target[part, None].expand(logits.shape)
        losses = binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        losses.mean(dim=0).sum().backward()
        sgd.step()
    return weights.detach().numpy(), before


OPTIONS = {
    "momentum": ({"lr": 0.05, "momentum": 0.9}, 1100, 1, 1),  # some of it compiled
    "nesterov": ({"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, 400, 3, 1),
    "epochs": ({"lr": 0.05, "momentum": 0.8, "weight_decay": 0.02}, 400, 3, 2),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_difference_is_that_of_two_runs_of_torch(name):
    options, rows, batch, epochs = OPTIONS[name]
    given = subject(from_torch(**options), rows=rows, batch=batch, epochs=epochs)
    rules = given.weight_rules()
    decay = options.get("weight_decay", 0.0)
    gain = given.optimizer.kappa * given.optimizer.alpha + given.optimizer.beta

    def size(here: np.ndarray, before: np.ndarray) -> float:
        curvature = rules.curvature[:, None] + decay
        return float(energy(here, before, curvature, gain, np).sum())

    hair = 1e-5 * np.eye(3)
    runs = torch_run(given, np.hstack([np.zeros((3, 1)), hair]), **options)
    zero = [run[:, 0] for run in runs]
    ends = size(*(run[:, 1:] - run[:, :1] for run in runs))
    starts = size(hair, hair)
    exact = given.follow_exactly()
    assert exact.log_growth == pytest.approx(0.5 * np.log(ends / starts), abs=1e-3)
    assert exact.path[-1] == exact.passes[-1]
    assert len(exact.path) == given.steps
    trained = given.train()
    assert trained.log_norm is not None
    assert np.exp(trained.log_norm[-1, 0]) == pytest.approx(np.linalg.norm(zero[0]), rel=1e-9)


def test_cells_and_streams_are_runs_of_their_own():
    given = subject(heavy_ball(0.05, 0.9))
    # As many cells, and as many orders, as the command follows together: one program for both.
    cells = given.at({"momentum": np.array([0.5, 0.9]), "lr": np.array([0.2, 0.05])})
    together = cells.follow(cells.feed())
    orders = [np.arange(given.rows), *[np.random.default_rng(0).permutation(given.rows)] * 3]
    streams = given.follow(given.feed(orders))
    np.testing.assert_allclose(streams.total[0], together.total[1], rtol=1e-9)
    assert together.lengths.sum() == given.steps
    assert abs(streams.total[1] - streams.total[0]) > 0.1
    assert abs(together.total[1] - together.total[0]) > 0.1


def test_near_zero_weights_the_curvature_is_at_its_bound():
    small = subject(heavy_ball(1e-5, 0.95, weight_decay=1e-3), rows=400)
    found, bound = small.follow_exactly(), small.with_largest_curvature().follow_exactly()
    assert found.log_growth == pytest.approx(bound.log_growth, rel=1e-3)
    large = replace(small, optimizer=heavy_ball(1.0, 0.5))  # the run leaves zero: less curvature
    assert (
        abs(
            large.follow_exactly().log_growth
            - large.with_largest_curvature().follow_exactly().log_growth
        )
        > 1
    )


def test_the_command_learns_classes(tmp_path, capsys):
    given = subject(heavy_ball(0.05, 0.9), rows=600).recording
    table = pd.DataFrame(given.inputs, columns=["x", "z"])
    words = np.where(given.target == 1, "warm", "cold")  # type: ignore[arg-type]
    table.assign(y=words).to_csv(tmp_path / "a.csv", index=False)
    base = [str(tmp_path / "a.csv"), "--target", "y", "--lr", "0.05", "--momentum", "0.9"]
    code, sentence = _run(["check", *base])
    assert code == 2
    assert "the model is least squares: learn one of two classes with --loss logistic" in sentence
    code, _ = _run(["check", *base, "--grid", "2", "--loss", "logistic", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert found["settings"]["loss"] == "logistic"
    assert "the class 1 of y is warm, and 0 is cold" in found["facts"]["preprocessing"]
    assert "a quarter of that of the rows" in " ".join(found["notes"])
    assert found["pass_radius"] is None
    code, sentence = _run(["check", *base, "--loss", "hinge"])
    assert (code, "unknown --loss 'hinge'" in sentence) == (2, True)


def test_two_values_are_told_to_be_learnt_by_least_squares():
    given = subject(heavy_ball(0.01, 0.5), rows=300).recording
    found = rx.check(given.inputs[:, :1], given.target, lr=0.01, momentum=0.5, grid=2)
    assert any("two values, and the model is least squares" in note for note in found.notes)
    found = rx.check(given.inputs[:, :1], given.inputs[:, 0] ** 2, lr=0.01, momentum=0.5, grid=2)
    assert not any("least squares" in note for note in found.notes)


def test_the_rhythm_of_few_rows_is_looked_for_in_several_passes():
    """Rows that are few are repeated for that, and their classes with them."""
    step, rng = np.arange(1600), np.random.default_rng(0)
    x = np.where(step // 13 % 2, 1.2, -1.2) + 0.4 * rng.normal(size=1600)
    y = (rng.random(1600) < 0.5).astype(float)
    found = rx.check(x, y, lr=0.08, momentum=0.97, loss="logistic", grid=2)
    assert (found.verdict, found.cause) == ("diverges", "order")
    assert found.period == pytest.approx(26, rel=0.1)
