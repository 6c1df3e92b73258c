"""Exact moments of features against quadrature, known Gaussian moments and plain sampling."""

from math import prod
from typing import Any

import jax
import numpy as np
import pytest
import scipy.stats

import resonax as rx
from resonax.core.moments import Moments
from resonax.learners import Features, Radial
from resonax.learners import features as learners

laws = pytest.mark.parametrize(("dim", "components"), [(1, 1), (2, 3)])


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def make_law(dim, components, seed=0, drawn=True):
    """Return a random Gaussian mixture, narrow enough for the quadrature to converge."""
    rng = np.random.default_rng(seed)
    root = 0.3 * rng.normal(size=(components, dim, dim))
    weight = rng.dirichlet(np.ones(components))
    parts = (rng.normal(size=(components, dim)), root if drawn else 0 * root, weight)
    return Moments(*parts, is_sampled=drawn)


def normal_law(mean, root):
    return Moments(np.array([mean]), np.array([root]), np.ones(1))


def numpy_draws(law, count, seed):
    rng = np.random.default_rng(seed)
    index = rng.choice(len(law.weight), count, p=np.asarray(law.weight))
    noise = rng.normal(size=(count, law.mean.shape[1]))
    return np.asarray(law.mean)[index] + np.einsum("kij,kj->ki", np.asarray(law.root)[index], noise)


def some_matrix(size):
    root = np.random.default_rng(size).normal(size=(size, size))
    return root @ root.T


def features_in(dim):
    places = np.random.default_rng(dim).normal(size=(3, dim))
    bumps = Radial.of(places, width=2.0)
    return [rx.Linear(), rx.Linear(bias=False), rx.Fourier.of(places), bumps, rx.Polynomial(2)]


@jax.jit
def both_moments(features, law, matrix):
    return features.second(law), features.fourth(law)(matrix)


@jax.jit
def moments_of_all(every, law, matrices):
    """Return both moments of several feature maps, each with its matrix: one program for all."""
    return [both_moments(*one) for one in zip(every, [law] * len(every), matrices, strict=True)]


@jax.jit
def quadratures_of_all(every, law, matrices):
    def quadrature(features, matrix):
        return Features.second(features, law), Features.fourth(features, law)(matrix)

    return [quadrature(*one) for one in zip(every, matrices, strict=True)]


@jax.jit
def apply(features, inputs):
    return features.apply(inputs)


@jax.jit
def apply_all(every, inputs):
    return [features.apply(inputs) for features in every]


@jax.jit
def second_moment(features, law):
    return features.second(law)


@laws
def test_closed_forms_agree_with_the_quadrature_of_the_base_class(dim, components):
    every = features_in(dim)
    sizes = [features.size(dim) for features in every]
    matrices = [some_matrix(size) for size in sizes]
    for seed in range(3):
        law = make_law(dim, components, seed)
        closed = moments_of_all(every, law, matrices)[:4]  # as the next tests call it
        wanted = quadratures_of_all(every[:4], law, matrices[:4])
        for size, ours, theirs in zip(sizes[:4], closed, wanted, strict=True):
            for found, want in zip(ours, theirs, strict=True):
                assert want.shape == (size, size)
                np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


@laws
def test_moments_agree_with_plain_averages_over_draws(dim, components):
    law = make_law(dim, components)
    draws = numpy_draws(law, 40_000, seed=1)
    every = features_in(dim)
    matrices = [some_matrix(features.size(dim)) for features in every]
    moments = moments_of_all(every, law, matrices)
    for phi, matrix, both in zip(apply_all(every, draws), matrices, moments, strict=True):
        phi = np.asarray(phi)
        outer = phi[:, :, None] * phi[:, None, :]
        inner = np.einsum("ki,ij,kj->k", phi, matrix, phi)[:, None, None]
        second, fourth = map(np.asarray, both)
        for each, want in ((outer, second), (inner * outer, fourth)):
            error = each.std(0) / np.sqrt(len(each))
            assert np.all(np.abs(each.mean(0) - want) <= 5 * error + 1e-12)


@pytest.mark.parametrize(("dim", "components"), [(1, 1), (2, 3), (3, 1)])
def test_fourth_moment_with_the_constant_alone_is_the_second(dim, components):
    # The first feature is 1, so S = e e^T with its unit vector e leaves E[phi phi^T].
    law = make_law(dim, components, seed=7)
    every = features_in(dim)[0 if dim < 3 else 4 :]
    corners = [np.zeros((features.size(dim),) * 2) for features in every]
    for corner in corners:
        corner[0, 0] = 1.0
    # Those of the others, whose first feature is an input, are not compared.
    for second, fourth in moments_of_all(every, law, corners)[2 if dim < 3 else 0 :]:
        np.testing.assert_allclose(fourth, second, atol=1e-6)


def test_polynomial_moments_on_a_line_follow_the_recursion_of_gaussian_moments():
    mean, deviation, degree = 0.7, 1.3, 3
    raw = [1.0, mean]
    for power in range(2, 4 * degree + 1):  # Stein: E x^p = m E x^(p-1) + (p-1) s^2 E x^(p-2)
        raw.append(mean * raw[-1] + (power - 1) * deviation**2 * raw[-2])
    law = normal_law([mean], [[deviation]])
    features = rx.Polynomial(degree)
    powers = np.add.outer(np.arange(degree + 1), np.arange(degree + 1))
    top = np.zeros((degree + 1, degree + 1))
    top[degree, degree] = 1.0  # picks E[phi phi^T x^(2 degree)]
    second, fourth = both_moments(features, law, top)
    np.testing.assert_allclose(second, np.array(raw)[powers], rtol=1e-12)
    np.testing.assert_allclose(fourth, np.array(raw)[powers + 2 * degree], rtol=1e-11)


def test_polynomial_moments_in_the_plane_are_those_of_isserlis():
    root = np.array([[1.2, 0.0], [-0.5, 0.8]])
    (a, b), (_, c) = root @ root.T
    law = normal_law(np.zeros(2), root)
    second = np.asarray(second_moment(rx.Polynomial(2), law))  # of 1, x, y, x^2, xy, y^2
    quartic = [
        [3 * a * a, 3 * a * b, a * c + 2 * b * b],
        [3 * a * b, a * c + 2 * b * b, 3 * b * c],
        [a * c + 2 * b * b, 3 * b * c, 3 * c * c],
    ]
    np.testing.assert_allclose(second[3:, 3:], quartic, rtol=1e-12)
    np.testing.assert_allclose(second[0], [1, 0, 0, a, b, c], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(second[1:3, 3:], 0, atol=1e-13)


def test_fourier_moments_are_those_of_the_characteristic_function():
    # E exp(ikwx) = exp(ikwm - k^2 w^2 s^2 / 2); squares of cosines have the doubled wave.
    wave, mean, deviation = 1.7, 0.4, 0.9
    law = normal_law([mean], [[deviation]])
    second = np.asarray(second_moment(rx.Fourier.of(np.array([[wave]])), law))
    one, two = (np.exp(1j * k * wave * mean - (k * wave * deviation) ** 2 / 2) for k in (1, 2))
    want = [
        [1, one.real, one.imag],
        [one.real, (1 + two.real) / 2, two.imag / 2],
        [one.imag, two.imag / 2, (1 - two.real) / 2],
    ]
    np.testing.assert_allclose(second, want, rtol=1e-13)


def test_a_large_batch_has_the_law_of_inputs_drawn_one_by_one(monkeypatch):
    law, batch, runs = make_law(2, 1, seed=5), 65, 160_000  # which tell 65 samples from 64
    draw_batch, drawn = learners._standard_batch, {}

    def draw_once(key, *rest):  # by the same key and of the same size: it is compiled once
        if (id(key), *rest) not in drawn:
            drawn[id(key), *rest] = key, draw_batch(key, *rest)
        return drawn[id(key), *rest][1]

    monkeypatch.setattr(learners, "_standard_batch", draw_once)

    def draw(seed):
        def one(key):
            with_bias, without = rx.Linear(), rx.Linear(bias=False)
            whole = with_bias.sample(key, law, batch)
            return whole, without.sample(key, law, batch) - whole[:2, :2]

        return jax.vmap(one)(jax.random.split(jax.random.key(seed), runs))

    short, difference = map(np.asarray, jax.jit(draw)(0))
    np.testing.assert_allclose(difference, 0.0, atol=1e-13)  # one law with the bias and without
    np.testing.assert_allclose(short, np.swapaxes(short, 1, 2), rtol=1e-12, atol=1e-15)
    pairs = [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2)]  # the corner is 1
    short = np.stack([short[:, i, j] for i, j in pairs], axis=1)
    mean = np.append(np.asarray(law.mean[0]), 1.0)
    spread = np.pad(law.root[0] @ law.root[0].T, (0, 1))
    moment = spread + np.outer(mean, mean)

    def covariance(i, j, k, m):  # Isserlis: of phi_i phi_j and phi_k phi_m, over the batch
        crossed = moment[i, k] * moment[j, m] + moment[i, m] * moment[j, k]
        return (crossed - 2 * mean[i] * mean[j] * mean[k] * mean[m]) / batch

    want = np.array([[covariance(*one, *other) for other in pairs] for one in pairs])
    scale = np.diag(want)
    error = short.mean(0) - [moment[pair] for pair in pairs]
    assert np.all(np.abs(error) < 5 * np.sqrt(scale / runs))
    # The variance of a sample covariance, with a tenth more as the entries are not quite normal.
    tolerance = 5 * np.sqrt(1.1 * (np.outer(scale, scale) + want**2) / runs)
    found = np.cov(short.T)
    assert np.all(np.abs(found - want) < tolerance)
    # Those of the scatter together, and of the mean: squared lengths in the metric of the law.
    for part in (slice(3), slice(3, 5)):
        ratio = np.trace(np.linalg.solve(want[part, part], found[part, part])) / len(pairs[part])
        assert abs(ratio - 1) < 4 * np.sqrt(1.1 * 2 / (len(pairs[part]) * runs))
    # The law itself: every entry, and mixtures that see how they depend; level 1e-4 each.
    draws = numpy_draws(law, 4000 * batch, seed=2).reshape(4000, batch, 2)
    phi = np.concatenate([draws, np.ones((4000, batch, 1))], axis=-1)
    long = np.stack([np.mean(phi[..., i] * phi[..., j], axis=1) for i, j in pairs], axis=1)
    for mixture in np.concatenate([np.eye(len(pairs)), some_matrix(len(pairs))]):
        found: Any = scipy.stats.ks_2samp(short[:4000] @ mixture, long @ mixture)
        assert found.pvalue > 1e-4


@pytest.mark.parametrize(("components", "batch"), [(1, 64), (3, 200)])
def test_small_batches_and_mixtures_are_drawn_one_by_one(components, batch):
    @jax.jit
    def drawn(law, key):
        return rx.Linear().sample(key, law, batch), law.sample(key, (batch,))

    found, inputs = map(np.asarray, drawn(make_law(2, components), jax.random.key(1)))
    phi = np.concatenate([inputs, np.ones((batch, 1))], axis=1)
    np.testing.assert_allclose(found, phi.T @ phi / batch, rtol=1e-12)


@jax.jit
def all_of(every, law, matrices, key):
    """Return features of fixed rows, their moments, and what is drawn from them, of several."""

    def one(features, matrix):
        drawn = features.sample(key, law, 200)
        return features.apply(law.mean), *both_moments(features, law, matrix), drawn

    return [one(*each) for each in zip(every, matrices, strict=True)]


def test_fixed_rows_are_not_drawn_from():
    law = make_law(2, 3, drawn=False)
    weight, keys = np.asarray(law.weight), [jax.random.key(seed) for seed in (0, 1)]
    every = features_in(2)
    matrices = [some_matrix(features.size(2)) for features in every]
    found = [jax.tree.map(np.asarray, all_of(every, law, matrices, key)) for key in keys]
    for matrix, (phi, second, fourth, drawn), (*_, again) in zip(matrices, *found, strict=True):
        want = np.einsum("c,ci,cj->ij", weight, phi, phi)
        np.testing.assert_allclose(second, want, rtol=1e-12, atol=1e-14)
        assert np.array_equal(drawn, again)
        np.testing.assert_allclose(drawn, want, rtol=1e-12, atol=1e-14)
        inner = weight * np.einsum("ci,ij,cj->c", phi, matrix, phi)
        want = np.einsum("c,ci,cj->ij", inner, phi, phi)
        np.testing.assert_allclose(fourth, want, rtol=1e-12, atol=1e-12)


def test_polynomial_features_are_all_monomials():
    x, y = 1.5, -0.5
    want = [prod(pick) for pick in ((), (x,), (y,), (x, x), (x, y), (y, y), (x,) * 3)]
    want += [x * x * y, x * y * y, y**3]
    np.testing.assert_allclose(apply(rx.Polynomial(3), np.array([x, y])), want, rtol=1e-14)


WRONG = {
    "degree must be at least 1 and at most 8": lambda: rx.Polynomial(0),
    "degree must be": lambda: rx.Polynomial(2.5),
    "degree must be lower for 5 inputs": lambda: rx.Polynomial(8).second(make_law(5, 1)),
    "dim must be at most 4": lambda: Features.second(rx.Linear(), make_law(8, 1)),
    "frequencies must be a table": lambda: rx.Fourier.of(np.array([1.0, 2.0])),
    "frequencies must be finite": lambda: rx.Fourier.of(np.array([[np.nan]])),
    "centers must not be empty": lambda: Radial.of(np.zeros((0, 1))),
    "width must be at least 1e-06": lambda: Radial.of(np.zeros((1, 1)), width=0.0),
}


@pytest.mark.parametrize(("message", "call"), WRONG.items(), ids=WRONG)
def test_a_wrong_argument_is_named_with_what_is_allowed(message, call):
    with pytest.raises(rx.ArgumentError, match=message):
        call()
