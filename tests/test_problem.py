"""One problem type: theory, simulation and recordings share its fields, its axes and its `at`."""

from __future__ import annotations

from dataclasses import fields, replace

import jax
import numpy as np
import optax
import pytest

import resonax as rx
from resonax.core.labels import LABELS
from resonax.dynamics import Problem, Setting
from resonax.learners import Features, Momentum
from resonax.recordings.recording import Recording
from resonax.rows.feed import principal_axes
from resonax.rows.subject import Subject
from resonax.simulation import Training

WAVE, BALL = rx.Sinusoid(period=22.0), rx.heavy_ball(0.01, 0.9)
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def subject() -> Subject:
    recording = Recording(ROWS, None, ("a", "b"), None, "array", ())
    return Subject(BALL, principal_axes(rx.Linear(), ROWS), 4, recording=recording)


PROBLEMS = {
    Problem: Problem(WAVE, BALL, batch=4),
    Setting: Setting(WAVE, BALL, batch=4),
    Training: Training(WAVE, BALL, batch=4),
    Subject: subject(),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda one: type(one).__name__)
def test_every_problem_has_the_same_fields_axes_and_at(problem):
    kind = type(problem)
    shared = [item.name for item in fields(Problem)]
    assert [item.name for item in fields(kind)][: len(shared)] == shared
    assert kind.at is Problem.at
    assert kind.axes is Problem.axes
    assert problem.axes[: len(BALL.axes)] == BALL.axes == ("lr", "momentum", *BALL.axes[2:])
    assert {"batch", "noise"} <= set(problem.axes)
    changed = problem.at({"momentum": 0.5, "batch": 8})
    assert type(changed) is kind
    assert (changed.optimizer.momentum, changed.batch, changed.optimizer.lr) == (0.5, 8, 0.01)
    same = [name for name in (item.name for item in fields(kind)) if name not in CHANGED]
    assert all(getattr(changed, name) is getattr(problem, name) for name in same)


CHANGED = ("optimizer", "batch", "process")  # that of a recording is made of its rows again


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=lambda one: type(one).__name__)
def test_every_axis_can_be_replaced_and_is_checked(problem):
    for name in problem.axes:
        value = 30.0 if name == "period" else 1 if name == "batch" else 0.25
        changed = problem.at({name: value})
        homes = (changed, changed.process, changed.optimizer)
        assert value in [getattr(home, name, None) for home in homes]
        with pytest.raises(rx.ArgumentError, match=f"{name} must be"):
            problem.at({name: -1e9})
    with pytest.raises(rx.ArgumentError, match="did you mean 'momentum'"):
        problem.at({"momentun": 0.5})
    with pytest.raises(rx.ArgumentError, match="beta2 cannot vary"):
        problem.at({"beta2": 0.5})
    with pytest.raises(rx.ArgumentError, match="batch must be a whole number"):
        problem.at({"batch": 2.5})
    with pytest.raises(rx.ArgumentError, match=r"reduction|averaged"):
        replace(problem, reduction="median")


def test_a_problem_keeps_its_parts_for_another_use():
    training = Training(WAVE, BALL, rx.Polynomial(3), batch=4, noise=0.3, reduction="sum", start=2)
    setting = Setting.of(training)
    for item in fields(Problem):
        assert getattr(setting, item.name) == getattr(training, item.name)
    assert Training.of(setting, start=2) == training
    assert setting.gradient_scale == training.gradient_scale == 4
    assert setting.size == training.size == 4
    along = Setting.of(subject())
    assert isinstance(along.model, Features)
    assert along.process.data.shape == (40, 1, 2)


def test_a_setting_takes_what_the_theory_can_judge():
    for given in ({"optimizer": rx.adam(0.1)}, {"model": rx.Network()}):
        training = replace(Training(WAVE, BALL), **given)
        with pytest.raises(rx.ArgumentError, match="momentum and a linear model"):
            Setting.of(training)
    assert "beta1" in replace(Training(WAVE, BALL), optimizer=rx.adam(0.1)).axes


def test_every_axis_has_a_label():
    for process in (WAVE, rx.Square(9), rx.AR2(9), rx.Switching(9), rx.Iid()):
        assert set(Setting(process, BALL).axes) <= set(LABELS)


@pytest.mark.parametrize("kind", [Problem, Setting, Training])
def test_the_numbers_of_a_problem_flow_through_jax(kind):
    problem = PROBLEMS[kind]
    lrs = jax.vmap(lambda lr: problem.at({"lr": lr}).optimizer.alpha)(np.array([0.25, 0.5]))
    assert lrs.tolist() == [0.25, 0.5]
    leaves, tree = jax.tree.flatten(problem)
    assert jax.tree.unflatten(tree, leaves) == problem
    assert jax.tree.structure(replace(problem, reduction="sum")) != tree


def of_library(module):  # which takes seconds to load
    return type("SGD", (), {"__module__": module})()


def along_rows(judge, optimizer):
    return judge(ROWS, lr=0.01, momentum=0.9, optimizer=optimizer)


TRAINING, ADAM = Training(WAVE, BALL), Problem(WAVE, rx.adam(0.01))
OTHERS = {  # what is called with what it is not for, and what is said
    "verdict": (lambda: rx.verdict(TRAINING), r"a Setting is needed, got a Training: Setting\.of"),
    "lyapunov": (lambda: rx.lyapunov(TRAINING), "a Setting is needed, got a Training"),
    "rates": (lambda: rx.rates(TRAINING, {"lr": [0.1]}), "a Setting is needed, got a Training"),
    "map": (
        lambda: rx.stability_map(TRAINING, momentum=[0.5], lr=[0.1]),
        "a Setting is needed, got a Training",
    ),
    "search": (
        lambda: rx.critical_momentum(PROBLEMS[Problem]),
        "a Setting is needed, got a Problem",
    ),
    "no setting": (lambda: rx.best_momentum(ADAM), "a setting needs SGD with momentum"),
    "one rate": (lambda: rx.rates(PROBLEMS[Setting], {"lr": 0.1}), "values must be lists of one"),
    "unnamed": (lambda: rx.rates(PROBLEMS[Setting], [0.1]), "values must be lists of one length"),
    "no rates": (lambda: rx.rates(PROBLEMS[Setting], {}), "values must be lists of one length"),
    "two lengths": (
        lambda: rx.rates(PROBLEMS[Setting], {"lr": [0.1, 0.2], "momentum": [0.5]}),
        "values must be lists of one length",
    ),
    "below 0": (lambda: rx.rates(PROBLEMS[Setting], {"lr": [0.1, -1.0]}), "lr must be above 0"),
    "endless": (
        lambda: rx.simulate(TRAINING, {"period": [5.0]}, steps=10**12),
        "steps must be at least 20 and at most 1e.08",
    ),
    "columns": (lambda: rx.simulate(TRAINING, [5.0]), "columns must name .* as {'period': "),
    "tongues": (lambda: rx.tongues("sine", 2, 9), "a Setting is needed, got 'sine'"),
    "level": (lambda: rx.level(BALL), "a Problem is needed, got Momentum"),
    "proof": (lambda: rx.order_proof(ADAM), "needs SGD with momentum and a linear model"),
    "simulate": (
        lambda: rx.simulate(Setting(WAVE, BALL), {"period": [5.0]}),
        r"a Training is needed, got a Setting: Training\.of",
    ),
    "trajectories": (
        lambda: rx.trajectories(PROBLEMS[Problem], runs=2, steps=4),
        "a Training is needed, got a Problem",
    ),
    "process": (lambda: Setting("sine", BALL), r"process must be .*Sinusoid\(.*, got 'sine'"),
    "optax": (
        lambda: Training(WAVE, optax.sgd(0.01, momentum=0.9)),
        r"optimizer .* got one of optax: for optax\.sgd write from_optax\(0\.01, momentum",
    ),
    "torch": (
        lambda: Setting(WAVE, of_library("torch.optim.sgd")),
        r"one of torch: .* write from_torch\(lr=",
    ),
    "river": (
        lambda: Setting(WAVE, of_library("river.optim.momentum")),
        r"one of river: .* from_river\(lr=",
    ),
    "a class": (lambda: Setting(WAVE, Momentum), r"optimizer .* like heavy_ball\(.*got <class"),
    "check": (lambda: along_rows(rx.check, optax.adam(0.1)), "got one of optax: .* a Transform"),
    "check of adam": (lambda: along_rows(rx.check, rx.adam(0.1)), "response measures others"),
    "order": (lambda: along_rows(rx.order, None), "optimizer must be one of resonax, .* got None"),
    "optimizer": (lambda: Training(WAVE, "sgd"), r"optimizer must be .*heavy_ball\(.*, got 'sgd'"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_a_function_is_not_for_is_refused_in_a_sentence(name):
    call, said = OTHERS[name]
    with pytest.raises(rx.ArgumentError, match=said) as refused:
        call()
    assert len(str(refused.value)) < 160


def test_what_is_advised_is_accepted():
    assert Setting.of(TRAINING) == Setting(WAVE, BALL, noise=0.0)
    assert Training.of(Setting(WAVE, BALL)) == Training(WAVE, BALL, noise=1.0)
    with pytest.raises(rx.ArgumentError, match="needs SGD with momentum"):
        Setting.of(ADAM)
