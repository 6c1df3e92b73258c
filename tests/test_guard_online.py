"""The guard by replay around models of river, scikit-learn and one's own, by copies."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from river import compose, linear_model, optim, preprocessing
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor

from linear_learner import LinearLearner, switching_rows
from resonax import ArgumentError, Guard
from resonax.guards.learner import Candidate
from resonax.guards.report import GuardWarning
from resonax.online.calls import Call, mix_rows
from resonax.online.learner import CopiedLearner
from resonax.online.libraries import find_library

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = IMAGES / 16


def named_rows(steps, period, seed):
    for x, y in switching_rows(steps, period, seed):
        yield dict(zip("abcdef", x[0].tolist(), strict=True)), float(y[0])


def regression(optimizer=None):
    return linear_model.LinearRegression(optimizer or optim.Momentum(0.01, 0.95), intercept_lr=0.0)


def weights_of(model):
    return np.array(list(model.weights.values()))


def cycles(steps, cycle, classes=10, seed=3):
    """Digits, one class after the other in every cycle; of all classes if it is 0."""
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(label == LABELS) for label in range(classes)]
    for step in range(steps):
        rows = places[step % cycle * classes // cycle] if cycle else np.concatenate(places)
        chosen = rng.choice(rows, 16)
        yield IMAGES[chosen], LABELS[chosen]


def test_a_resonance_of_river_is_undone_and_independent_rows_are_left_alone(caplog):
    model, plain = regression(), regression()
    guard = Guard(model)
    for x, y in named_rows(900, 6, seed=1):
        loss = guard.learn(x, y)
        plain.learn_one(x, y)
    assert np.linalg.norm(weights_of(plain)) > 10
    assert np.linalg.norm(weights_of(model)) < 1
    assert guard.model is model
    assert loss == pytest.approx(loss)
    assert guard.setting.momentum < 0.95
    assert model.optimizer.rho == 0.95  # between calls it is the user's own
    assert " order " in caplog.records[0].getMessage()
    model, plain = regression(), regression()
    guard = Guard(model)
    for x, y in named_rows(600, 1, seed=1):
        wanted = (plain.predict_one(x) - y) ** 2
        plain.learn_one(x, y)
        assert guard.learn(x, y) == wanted
    assert not guard.report().events


MODELS = {
    "network": (
        lambda: MLPClassifier((16,), solver="sgd", learning_rate_init=0.1, momentum=0.95),
        10,
        16,
    ),
    "hinge": (lambda: SGDClassifier(learning_rate="constant", eta0=0.1), 3, 8),
}


@pytest.mark.parametrize("name", MODELS)
def test_classes_in_cycles_are_not_unlearnt_by_scikit_learn(name):
    make, classes, spacing = MODELS[name]
    shown = np.isin(LABELS, range(classes))
    right = {}
    for cycle in (20, 0):
        model = make().set_params(random_state=0)
        plain = copy.deepcopy(model)
        guard = Guard(model, spacing=spacing)
        for x, y in cycles(40 if cycle else spacing + 2, cycle, classes):
            guard.learn(x, y, classes=range(classes))
            plain.partial_fit(x, y, classes=range(classes))
        right[cycle] = [one.score(IMAGES[shown], LABELS[shown]) for one in (model, plain)]
    assert right[20][0] > 0.65 > 0.4 > right[20][1]
    assert right[0][0] == right[0][1]
    assert guard.setting == Candidate(guard.setting.momentum)


def test_numbers_that_end_are_undone_or_raised_as_without_a_guard():
    """scikit-learn raises an error where weights overflow; smaller steps help."""
    rng = np.random.default_rng(0)
    batches = [(3 * rng.standard_normal((8, 3)), rng.standard_normal(8)) for _ in range(96)]

    def model():
        return SGDRegressor(learning_rate="constant", eta0=1.0, random_state=0)

    guard = Guard(model())
    for batch in batches:
        guard.learn(*batch)
    assert guard.setting.lr < 1
    assert np.all(np.abs(guard.model.coef_) < 10)
    assert "is not finite" in repr(guard)
    assert repr(guard) == str(guard.report())


class Ending:
    """A model of scikit-learn's form whose numbers end at the first batch."""

    def partial_fit(self, x, y):
        raise ValueError("Floating-point under-/overflow occurred at epoch #1.")

    def predict(self, x):
        return np.zeros(len(x))


@pytest.mark.parametrize("policy", ["watch", "safe"])
def test_an_error_for_numbers_that_end_is_an_infinite_loss_and_raised_where_one_watches(policy):
    batch = np.ones((2, 1)), np.ones(2)
    guard = Guard(Ending(), policy)
    if policy == "safe":
        assert guard.learn(*batch) == np.inf
        return
    with pytest.raises(ValueError, match="overflow"):
        guard.learn(*batch)


def test_watching_changes_nothing_and_global_random_numbers_go_on():
    """scikit-learn shuffles the rows of a batch by NumPy's global random numbers."""
    ends = []
    for guarded in (False, True):
        np.random.seed(0)  # noqa: NPY002
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.5)
        guard = Guard(model, "watch", spacing=8)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", GuardWarning)
            for x, y in cycles(12, 20, classes=3):
                learn = guard.learn if guarded else model.partial_fit
                learn(x, y, classes=range(3))
        ends.append((model.coef_.copy(), np.random.random()))  # noqa: NPY002
    assert [one.category for one in caught] == [GuardWarning]
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]


def test_an_earlier_copy_is_offered_while_the_model_is_worse():
    """Wrong outputs spoil the model, and not the copy that is held."""
    rng = np.random.default_rng(0)
    model = SGDRegressor(learning_rate="constant", eta0=0.02)
    guard = Guard(model)
    assert guard.offered() is model
    for _ in range(40):
        x = rng.standard_normal((8, 2))
        guard.learn(x, x[:, 0])
    assert guard.offered() is model
    good = model.coef_.copy()
    for _ in range(8):
        guard.learn(rng.standard_normal((8, 2)), np.full(8, 30.0))
    spoilt = model.coef_.copy()
    np.testing.assert_array_equal(guard.offered().coef_, good)
    np.testing.assert_array_equal(model.coef_, spoilt)


@pytest.mark.parametrize(
    "model",
    [
        SGDRegressor(),
        MLPRegressor(hidden_layer_sizes=(8,), solver="sgd", learning_rate="invscaling"),
        MLPRegressor(hidden_layer_sizes=(8,), solver="adam"),
    ],
)
def test_a_replay_of_a_run_gives_its_bits_again(model):
    rng = np.random.default_rng(0)
    learner = CopiedLearner(model, find_library(model))
    learner.set(Candidate(0.5, 0.1))
    learner.step(learner.call((rng.standard_normal((8, 3)), rng.standard_normal(8)), {}))
    start, calls = learner.save(), []
    for _ in range(6):
        calls.append(learner.call((rng.standard_normal((8, 3)), rng.standard_normal(8)), {}))
        learner.step(calls[-1])
        np.random.random()  # noqa: NPY002  # the loop draws random numbers too
    end = learner.loss(calls)
    learner.load(start)
    assert learner.loss(calls) != end
    for call in calls:
        learner.step(call)
    assert learner.loss(calls) == end


RIVER = {
    "momentum": (lambda lr, m: optim.Momentum(lr, m), 0.9),
    "nesterov": (lambda lr, m: optim.NesterovMomentum(lr, m), 0.9),
    "adam": (lambda lr, m: optim.Adam(lr, beta_1=m), 0.9),
    "schedule": (lambda lr, m: optim.Momentum(optim.schedulers.InverseScaling(lr), m), 0.9),
    "rmsprop": (lambda lr, _: optim.RMSProp(lr), 0.0),
}


@pytest.mark.parametrize("name", RIVER)
def test_a_candidate_is_the_model_with_other_numbers(name):
    make, own = RIVER[name]
    row = Call(([{"x": 1.0}, {"x": -0.5}] * 5, [1.0, 2.0] * 5), {}, None, None, is_rows=True)

    def model(lr, momentum):
        scaler = preprocessing.StandardScaler()
        return scaler | linear_model.LinearRegression(make(lr, momentum), intercept_lr=lr)

    changed, wanted = model(0.1, 0.9), model(0.01, 0.5)
    learner = CopiedLearner(changed, find_library(changed))
    assert learner.own == Candidate(own)
    learner.set(Candidate(min(own, 0.5), 0.1))
    learner.step(row)
    for x, y in row.parts:
        wanted.learn_one(x, y)
    ends = [one["LinearRegression"] for one in (changed, wanted)]
    assert weights_of(ends[0]) == pytest.approx(weights_of(ends[1]), rel=1e-12)
    assert ends[0].intercept == pytest.approx(ends[1].intercept, rel=1e-12)
    assert ends[0].optimizer.learning_rate > ends[1].optimizer.learning_rate  # in force no more


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_a_candidate_is_the_network_of_scikit_learn_with_other_numbers(solver):
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((8, 3)), rng.standard_normal(8)) for _ in range(5)]
    name = "momentum" if solver == "sgd" else "beta_1"

    def model(lr, momentum):
        own = {name: momentum, "learning_rate_init": lr}
        return MLPRegressor(hidden_layer_sizes=(4,), solver=solver, random_state=0, **own)

    changed, wanted = model(0.01, 0.9), model(0.001, 0.5)
    learner = CopiedLearner(changed, find_library(changed))
    learner.set(Candidate(0.5, 0.1))
    for batch in batches:
        learner.step(learner.call(batch, {}))
        wanted.partial_fit(*batch)
    for one, other in zip(changed.coefs_, wanted.coefs_, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_pickled_guard_goes_on_with_the_same_bits():
    rows = list(named_rows(700, 6, seed=1))
    guard = Guard(regression())
    for x, y in rows[:300]:
        guard.learn(x, y)
    other = pickle.loads(pickle.dumps(guard))
    for x, y in rows[300:]:
        assert guard.learn(x, y) == other.learn(x, y)
    assert guard.report().events == other.report().events != ()
    np.testing.assert_array_equal(weights_of(guard.model), weights_of(other.model))


def test_any_object_is_guarded_by_two_functions_and_two_names():
    """This one cannot be pickled, and is copied by copy.deepcopy."""

    class Own(LinearLearner):
        pass

    guard = Guard(
        Own(lr=0.03, momentum=0.95),
        learn=lambda model, x, y: model.step((x, y)),
        loss=lambda model, x, y: model.loss([(x, y)]),
        knob="momentum",
        lr="lr",
    )
    for x, y in switching_rows(160, 6, seed=3):
        guard.learn(x, y)
    assert np.linalg.norm(guard.model.weights) < 1
    assert guard.setting.momentum < 0.95
    assert guard.model.momentum == 0.95


def test_a_run_that_was_interrupted_in_a_replay_goes_on_as_if_it_had_not_been():
    class Failing(LinearLearner):
        calls, fails = 0, ()

        def step(self, batch):
            Failing.calls += 1
            if Failing.calls in Failing.fails:
                raise KeyboardInterrupt
            return super().step(batch)

    ends = []
    for fails in ((), (40,)):
        Failing.calls, Failing.fails = 0, fails
        guard = Guard(
            Failing(lr=0.01, momentum=0.95),
            learn=lambda model, x, y: model.step((x, y)),
            loss=lambda model, x, y: model.loss([(x, y)]),
            knob="momentum",
        )
        stopped = []
        for step, batch in enumerate(switching_rows(70, 6, seed=1), 1):
            try:
                guard.learn(*batch)
            except KeyboardInterrupt:
                stopped.append(step)
        ends.append((stopped, guard.report().work, *guard.model.weights))
    assert ends[0][0] == []
    assert ends[1][0] == [32]  # the 40th call is in the replay after step 32
    assert ends[0][1:] == ends[1][1:]


X = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [
        (X, X[:, 0]),
        (pd.DataFrame(X, columns=["a", "b"]), pd.Series(X[:, 0])),
        (sparse.csr_matrix(X), X[:, 0]),
        (X.tolist(), X[:, 0].tolist()),
    ],
)
def test_rows_of_arrays_tables_sparse_matrices_and_lists_are_mixed(inputs, targets):
    sizes = slice(0, 2), slice(2, 6)

    def piece(part, rows):
        return part.iloc[rows] if hasattr(part, "iloc") else part[rows]

    calls = [Call((piece(inputs, rows), piece(targets, rows)), {}) for rows in sizes]
    mixed = mix_rows(calls, np.random.default_rng(0), None)
    found = [
        np.asarray(one.batch[0].toarray() if sparse.issparse(one.batch[0]) else one.batch[0])
        for one in mixed
    ]
    assert [len(one) for one in found] == [2, 4]
    np.testing.assert_array_equal(
        np.concatenate(found)[:, 0], np.concatenate([one.batch[1] for one in mixed])
    )
    assert sorted(np.concatenate(found)[:, 0]) == X[:, 0].tolist()
    assert [type(one.batch[0]) for one in mixed] == [type(inputs)] * 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Guard(object()), "learn=lambda model, x, y"),
        (lambda: Guard(regression(), "sfae"), "safe"),
        (lambda: Guard(regression(), knob="rho"), "has no 'rho'"),
        (lambda: Guard(regression(), rows=0), "rows must be at least 1"),
        (lambda: Guard(SGDRegressor(), candidates=[0.5]), "needs knob"),
        (lambda: Guard(SGDClassifier(), candidates=[Candidate(0.0, 0.1)]), "needs lr"),
        (lambda: Guard(SGDClassifier(), mix=False), "nothing to change"),
        (lambda: Guard(regression()).learn(), "at least one row"),
        (lambda: Guard(SGDRegressor()).learn(np.ones((0, 2)), np.ones(0)), "at least one row"),
    ],
)
def test_what_cannot_be_guarded_is_refused_in_a_sentence(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


def test_a_classifier_of_river_is_judged_by_its_log_loss():
    model = compose.Pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    guard = Guard(model)
    assert guard.learn({"x": 1.0}, True) == pytest.approx(np.log(2))
    for _ in range(20):
        losses = [guard.learn({"x": 1.0}, True), guard.learn({"x": -1.0}, False)]
    assert max(losses) < np.log(2)


def test_a_rhythm_within_steps_is_told_in_rows_and_in_steps():
    """A day of 24 rows in steps of 16 repeats after 1.5 steps, not after 3."""
    rng = np.random.default_rng(0)
    model = linear_model.LinearRegression(optim.Momentum(0.05, 0.97))
    guard = Guard(model, "watch")
    swing = 2 * np.sin(2 * np.pi * np.arange(6000) / 24)
    with warnings.catch_warnings(record=True, action="always"):
        for row in swing:
            x = {"x": row + 0.3 * rng.standard_normal()}
            guard.learn(x, 1.0 + 0.1 * rng.standard_normal())
    calls = list(guard._run.state.history.batches)
    found = guard._learner.phases(calls)
    assert found.rows == pytest.approx(24, rel=0.03)
    assert found.period == pytest.approx(1.5, rel=0.03)


def test_one_name_guards_models_of_torch_as_well():
    torch = pytest.importorskip("torch")
    import resonax.torch

    model = torch.nn.Linear(2, 1)
    guard = Guard(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), policy="watch")
    assert isinstance(guard, resonax.torch.Guard)
    assert guard.momentum == 0.9
    with pytest.raises(ArgumentError, match=r"resonax\.torch\.Guard"):
        Guard(torch.nn.Linear(2, 1))
    copied = pickle.loads(pickle.dumps(Guard(regression())))
    assert isinstance(copied, Guard)
