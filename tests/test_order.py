"""Worst and safest orders: against all orders of few rows, torch's optimizer, and bounds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import numpy as np
import pytest

import resonax as rx
from resonax.cli.app import main
from resonax.learners import Linear, Momentum
from resonax.recordings.recording import read_recording
from resonax.rows.beam import beam_search, repeating_parts
from resonax.rows.feed import principal_axes
from resonax.rows.order_search import (
    climb_permutation,
    climb_words,
    search_permutation,
    search_words,
)
from resonax.rows.row_updates import RowUpdates
from resonax.rows.safe_orders import herded, pairwise_balanced, stratified
from resonax.theory.common_norm import (
    growth_in,
    lifted,
    lifted_norm,
    quadratic_bound,
    symmetric_power,
)
from resonax.theory.order_proof import circle_norm

OPTIMIZERS = {
    "heavy_ball": rx.heavy_ball(0.2, 0.7),
    "nesterov": rx.nesterov(0.2, 0.7, weight_decay=0.01),
    "dampened": rx.heavy_ball(0.4, 0.7, dampening=0.5),
}


def some_rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 2))


def plain_matrix(row: np.ndarray, optimizer: Momentum) -> np.ndarray:
    """The update of (u, v) by one row, built from its blocks."""
    size = len(row)
    curved = 2 * np.outer(row, row) + optimizer.weight_decay * np.eye(size)
    gain = optimizer.kappa * optimizer.alpha + optimizer.beta
    kept = optimizer.momentum * np.eye(size)
    first = [np.eye(size) - gain * curved, optimizer.kappa * kept]
    return np.block([first, [-optimizer.alpha * curved, kept]])


def plain_rates(matrices: list[np.ndarray], words: Iterable[tuple[int, ...]]) -> np.ndarray:
    """The rates of words of one length, by products of the matrices."""
    places = np.array(list(words))
    product = np.eye(len(matrices[0]))
    for column in places.T:
        product = np.array(matrices)[column] @ product
    return np.log(np.abs(np.linalg.eigvals(product)).max(axis=1)) / places.shape[1]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_a_row_is_its_matrix_and_the_costate_its_transpose(name):
    rows, optimizer = some_rows(5), OPTIMIZERS[name]
    updates = RowUpdates.of(rows, optimizer)
    plain = [plain_matrix(row, optimizer) for row in rows]
    np.testing.assert_allclose(updates.matrices(np.arange(5)), plain, atol=1e-12)
    state = np.random.default_rng(1).normal(size=(5, 4, 1))
    back = np.concatenate(updates.step_back((state[:, :2], state[:, 2:]), np.arange(5)), axis=1)
    np.testing.assert_allclose(back, np.swapaxes(plain, 1, 2) @ state, atol=1e-12)
    word = (0, 3, 3, 1, 4)
    assert updates.rates(np.array([word])) == pytest.approx(plain_rates(plain, [word]), abs=1e-10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_order_of_few_rows_is_worse_than_the_one_found(name):
    """All words of up to 6 of 4 rows, and all orders of 6 rows."""
    optimizer = OPTIMIZERS[name]
    rows = some_rows(4, seed=2)
    plain = [plain_matrix(row, optimizer) for row in rows]
    best = max(
        plain_rates(plain, itertools.product(range(4), repeat=length)).max()
        for length in range(1, 7)
    )
    assert search_words(RowUpdates.of(rows, optimizer)).rate >= best - 1e-9
    rows = some_rows(6, seed=3)
    plain = [plain_matrix(row, optimizer) for row in rows]
    every = plain_rates(plain, itertools.permutations(range(6)))
    updates, rng = RowUpdates.of(rows, optimizer), np.random.default_rng(0)
    found = search_permutation(updates, [], rng)
    assert sorted(found.word) == list(range(6))
    assert found.rate == pytest.approx(plain_rates(plain, [tuple(found.word)])[0], abs=1e-10)
    assert found.rate >= np.quantile(every, 0.99)
    safe = climb_permutation(updates, np.arange(6), rng, sign=-1.0)
    assert safe.rate <= np.quantile(every, 0.2)


def test_words_climb_from_random_ones_to_the_worst_of_all():
    """A search by single rows and cycles finds it without a climb; so few random words do not."""
    optimizer, rows = OPTIMIZERS["heavy_ball"], some_rows(4, seed=2)
    plain = [plain_matrix(row, optimizer) for row in rows]
    every = plain_rates(plain, itertools.product(range(4), repeat=6))
    begun = np.random.default_rng(0).integers(4, size=(12, 6))
    words, rates = climb_words(RowUpdates.of(rows, optimizer), begun, 20)
    first = plain_rates(plain, begun)
    assert rates == pytest.approx(plain_rates(plain, words), abs=1e-10)
    assert (rates >= first - 1e-10).all()
    assert np.mean(rates > first + 1e-3) > 0.8
    assert first.max() < 0.6 * every.max()
    assert rates.max() == pytest.approx(every.max(), abs=1e-9)


def test_bounds_hold_and_meet_for_rows_in_all_directions():
    angle = np.pi * np.arange(32) / 32
    rows = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    optimizer = rx.heavy_ball(0.3, 0.5)
    updates = RowUpdates.of(rows, optimizer)
    found = search_words(RowUpdates.of(rows[::2], optimizer))  # every other row will do
    worst = rx.order_proof(optimizer, 2.0).rate
    norm, _ = circle_norm(optimizer, 2.0)
    start = np.kron(norm, np.eye(2))
    bound, shown = quadratic_bound(updates.matrices, 32, start)
    assert found.rate <= bound + 1e-9
    assert bound == pytest.approx(worst, rel=0.01)
    assert found.rate == pytest.approx(worst, rel=0.01)  # the turning row of the theorem
    grown = growth_in(shown, updates.matrices(np.arange(32)))
    assert np.log(grown.max()) / 2 == pytest.approx(bound)


def test_forms_of_higher_degree_bound_at_least_as_well():
    rows = np.concatenate([some_rows(8, seed=4)[:, :1], np.ones((8, 1))], axis=1)
    optimizer = rx.heavy_ball(0.05, 0.85)
    updates = RowUpdates.of(rows, optimizer)
    matrices = updates.matrices(np.arange(8))
    radii = np.abs(np.linalg.eigvals(matrices)).max(axis=1)
    powers = np.abs(np.linalg.eigvals(lifted(matrices, 2))).max(axis=1)
    np.testing.assert_allclose(powers, radii**2, rtol=1e-6)
    assert symmetric_power(3, 4).shape == (64, 20)
    norm, rate = circle_norm(optimizer, 2 * float(np.max(np.sum(rows**2, axis=1))))
    start = np.kron(norm, np.eye(2))
    bounds = [
        quadratic_bound(updates.matrices, 8, lifted_norm(start, degree), degree)[0]
        for degree in (1, 2)
    ]
    assert search_words(updates).rate <= bounds[1] < bounds[0] <= rate + 1e-9


def test_the_beam_finds_growth_where_greedy_search_finds_none():
    x = np.linspace(-2, 2, 80)[:, None]
    rows = np.concatenate([x, np.ones_like(x)], axis=1)
    optimizer = rx.heavy_ball(0.01, 0.9)
    updates = RowUpdates.of(rows, optimizer)
    norm, _ = circle_norm(optimizer, 2 * float(np.max(np.sum(rows**2, axis=1))))
    rates = {}
    for name, numbers in {"greedy": (1, 1, 0), "beam": (24, 4, 6)}.items():
        beams, branches, depth = numbers
        path = beam_search(updates, norm, 200, beams=beams, branches=branches, depth=depth)
        rates[name] = updates.rates(repeating_parts(updates, path[50:], 80, 1)[0][None])[0]
    assert rates["beam"] > 0.005
    assert rates["beam"] > rates["greedy"] + 0.005
    once = beam_search(updates, norm, 80, repeats=False)
    assert sorted(once) == list(range(80))


@pytest.fixture(autouse=True)
def _trained_briefly(monkeypatch):
    """Confirm by fewer steps than users' orders are, in all tests but those of `found`."""
    monkeypatch.setattr("resonax.checking.order._TRAINED", 8_000)


FEW = np.random.default_rng(6).normal(size=(4, 1))
RUN = {"lr": 0.02, "weight_decay": 0.1, "standardise": False}


@pytest.fixture(scope="module")  # made before what is patched for a test
def found():
    return rx.order(FEW, momentum=0.95, repeats=True, **RUN)


def test_found_orders_reproduce_in_torch_and_below_the_bound_there_is_none(found, monkeypatch):
    import torch

    x = FEW
    assert found.confirmed
    assert 0.01 < found.rate == found.lower <= found.upper <= found.order_proof.rate + 1e-9
    rows = torch.tensor(np.concatenate([x, np.ones_like(x)], axis=1))
    weights = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    method = torch.optim.SGD([weights], lr=0.02, momentum=0.95, weight_decay=0.1)
    logs = []
    while len(logs) < 700:
        for place in found.rows:
            row = rows[int(place)]
            weights.grad = 2 * row * (row @ weights.detach())
            method.step()
            logs.append(float(torch.log(weights.detach().norm())))
    measured = np.polyfit(np.arange(200, 700), logs[200:700], 1)[0]
    assert measured == pytest.approx(found.rate, rel=0.03)
    monkeypatch.setattr("resonax.checking.order._QUARTIC", 0)  # quadratic forms will do
    below = rx.order(x, momentum=0.99 * found.order_proof.momentum, **RUN)
    assert below.rate <= below.lower <= below.upper < 0  # the decay, where rows do nothing
    assert below.order_proof.holds


def test_many_rows_are_trained_without_overflow(monkeypatch):
    """Words are made of some of the rows; a pass along 200 of them exceeds all numbers."""
    monkeypatch.setattr("resonax.checking.order._WORD_ROWS", 20)
    monkeypatch.setattr("resonax.checking.order._BEAM_STEPS", 60)
    x = np.random.default_rng(7).normal(size=(200, 1))
    found = rx.order(x, lr=20.0, momentum=0.95, repeats=True)
    assert 200 * found.rate > np.log(np.finfo(float).max)
    assert found.confirmed
    assert found.rows.max() < 200


def test_balanced_orders_are_permutations_and_safer_than_shuffles(monkeypatch):
    x = np.sin(np.arange(120) / 7.0)[:, None]
    rng = np.random.default_rng(0)
    rows = np.concatenate([x, np.ones_like(x)], axis=1)
    for order in (herded(rows, rng), pairwise_balanced(rows, rng), stratified(rows, 8, rng)):
        assert sorted(order) == list(range(120))
    assert sorted(stratified(rows[:119], 8, rng)) == list(range(119))
    assert sorted(pairwise_balanced(rows[:119], rng)) == list(range(119))
    monkeypatch.setattr("resonax.checking.order._QUADRATIC", 0)  # no bound of the others is asked
    found = rx.order(x, lr=0.05, momentum=0.9, kind="safest")
    assert found.confirmed
    assert found.rate <= min(found.compared.values())
    assert found.compared["herded"] < found.compared["shuffled"] < found.compared["as recorded"]
    assert "the largest growth of the orders compared here is" in str(found)  # none was searched


def test_random_swaps_hardly_better_a_safe_order(monkeypatch):
    """Of 400 swaps of two rows each, none gives more than 1% of what the search gave."""
    monkeypatch.setattr("resonax.checking.order._QUADRATIC", 0)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(60, 2)) + np.sin(np.arange(60) / 4)[:, None]
        found = rx.order(x, lr=0.05, momentum=0.9, kind="safest", seed=seed)
        recording = read_recording(x)
        model = principal_axes(Linear(), recording.inputs)
        features = np.asarray(model.apply(recording.inputs), float)
        updates = RowUpdates.of(features, rx.heavy_ball(0.05, 0.9))
        tried = np.repeat(found.rows[None], 400, axis=0)
        for order in tried:
            first, second = rng.choice(60, 2, replace=False)
            order[[first, second]] = order[[second, first]]
        assert updates.rates(found.rows[None])[0] == pytest.approx(found.rate, abs=1e-12)
        shuffles = found.compared["shuffled"] - found.rate
        assert updates.rates(tried).min() > found.rate - 0.01 * shuffles


def test_the_command_writes_the_order_and_says_it_in_json(tmp_path, capsys, monkeypatch):
    data, out = tmp_path / "rows.csv", tmp_path / "order.csv"
    np.savetxt(data, some_rows(30), delimiter=",", header="a,b", comments="")
    asked = f"order {data} --lr 0.01 --momentum 0.9".split()
    monkeypatch.setattr("sys.argv", ["resonax", *asked, "--json", "--out", str(out)])
    main()
    found = json.loads(capsys.readouterr().out)
    assert {"rate", "lower", "upper", "confirmed"} < set(found)
    assert found["rate"] <= found["lower"] <= found["upper"]
    table = np.loadtxt(out, delimiter=",", skiprows=1, dtype=int)
    assert sorted(table[:, 1]) == list(range(30))
    assert table[:, 1].tolist() == found["rows"]
    for wrong in (["--safest", "--repeats"], ["--batch", "2"], ["--out", "order.txt"]):
        monkeypatch.setattr("sys.argv", ["resonax", *asked, *wrong])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(rx.ArgumentError, match="kind must be worst or safest"):
        rx.order(some_rows(9), lr=0.1, momentum=0.1, kind="best")


def test_a_basis_has_no_bias_to_leave_out():
    rows = np.random.default_rng(0).normal(size=(80, 1))
    with pytest.raises(rx.ArgumentError, match="bias belongs to the linear model"):
        rx.order(rows, lr=0.01, momentum=0.5, basis=rx.Polynomial(2), bias=False)


def test_the_sentence_of_a_picture_fits_into_it(found):
    figure = found.plot()
    figure.draw_without_rendering()
    words = figure.findobj(lambda item: "order found" in getattr(item, "get_text", str)())
    title = words[0].get_window_extent()
    assert figure.bbox.x0 <= title.x0 < title.x1 <= figure.bbox.x1
