"""The kernel of a GPU that trains networks: what it computes, and that it can be made."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from resonax.learners import Network, heavy_ball, nesterov
from resonax.processes import Switching
from resonax.simulation import Training, network, network_kernel, simulate
from resonax.simulation.network_batches import TEST_ROWS, Batch
from resonax.simulation.position_form import update_weights
from resonax.simulation.schedule import BLOCK
from resonax.simulation.walk import Loop

COLUMNS = {"period": [0.0, 6.0]}  # in random order, and in their own
RUN = {"runs": 2, "steps": 4 * BLOCK, "window": BLOCK, "numba": False}


def training(optimizer=heavy_ball, **rest):
    process = Switching(period=6.0, amplitude=0.6, variance=0.1, dim=2)
    return Training(process, optimizer(0.02, 0.9), Network((20, 5)), batch=6, noise=0.1, **rest)


@pytest.fixture
def on_a_cpu(monkeypatch):
    """Let a CPU compute what a kernel says."""
    call = functools.partial(network_kernel.pl.pallas_call, interpret=True)
    monkeypatch.setattr(network_kernel.pl, "pallas_call", call)
    monkeypatch.setattr(network_kernel, "_PRECISION", jax.lax.Precision.HIGHEST)


@pytest.mark.usefixtures("on_a_cpu")
def test_each_program_of_a_kernel_trains_one_network():
    optimizer, (paths, cells, steps, rows) = heavy_ball(0.02, 0.9), (2, 1, 2, 6)
    random = np.random.default_rng(0)

    def drawn(*shape):
        return random.standard_normal(shape, np.float32)

    sizes = ((2, 20), (20, 20), (20, 1))
    layers = tuple(
        (0.3 * drawn(paths, cells, *size), 0.1 * drawn(paths, cells, size[1])) for size in sizes
    )
    batches = Batch(drawn(steps, paths, 1, rows, 2), drawn(steps, paths, 1, rows))
    tests = Batch(drawn(steps, paths, 1, TEST_ROWS, 2), drawn(steps, paths, 1, TEST_ROWS))
    scale, momenta = np.float32([[1], [3]]), np.float32([[0.8], [0.99]])
    state = layers, layers, np.zeros((paths, cells), np.float32)

    def at(momentum):
        return optimizer.at({"momentum": momentum})

    @jax.jit
    def train(momenta, scale, state, batches, tests):
        pad, loop = network_kernel._padded, Loop(*[False] * len(Loop._fields))
        return network_kernel._train(
            (jax.vmap(jax.vmap(at))(momenta), scale),
            jax.tree.map(lambda leaf: pad(leaf, 2), state),
            *jax.tree.map(lambda leaf: pad(leaf, 3, 16), (batches, tests)),
            loop._replace(rows=rows),
            1,
        )

    @jax.jit
    def alone(momentum, scale, state, batches, tests):
        weights, memory, total = state
        for step in range(steps):
            slope = jax.grad(network._loss)(weights, *(part[step] for part in batches))
            slope = jax.tree.map(lambda leaf: scale * leaf, slope)
            weights, memory = update_weights(at(momentum), slope, weights, memory, decays=False)
            total = total + network._loss(weights, *(part[step] for part in tests))
        return weights, memory, total

    found = jax.tree.map(np.asarray, train(momenta, scale, state, batches, tests))
    for path in range(paths):
        own = jax.tree.map(lambda leaf, path=path: leaf[path, 0], state)
        given = jax.tree.map(lambda leaf, path=path: leaf[:, path, 0], (batches, tests))
        wanted = alone(momenta[path, 0], scale[path, 0], own, *given)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            mine = ours[path, 0]
            np.testing.assert_allclose(mine[tuple(map(slice, theirs.shape))], theirs, atol=1e-5)
            assert np.abs(mine).sum() == pytest.approx(float(np.abs(theirs).sum()), 1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize(
    ("given", "shared"),
    [
        (training(), {"amplitude": [0.3, 0.6]}),
        (training(nesterov, reduction="sum"), {"momentum": [0.8, 0.9]}),
    ],
)
def test_kernels_give_what_the_compiled_loop_gives(monkeypatch, given, shared):
    plain = simulate(given, COLUMNS, shared, **RUN)
    monkeypatch.setattr(network, "_step_on", lambda *_: network_kernel.step_in_kernels)
    found = simulate(given, COLUMNS, shared, **RUN)
    for ours, theirs in zip(found, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


class Seen(Exception):  # noqa: N818
    pass


def test_a_kernel_can_be_made_for_cuda(monkeypatch):
    calls = []

    def see(*given, **static):
        calls.append((given, static))
        raise Seen

    monkeypatch.setattr(network, "_step_on", lambda *_: see)
    with pytest.raises(Seen):
        simulate(training(), COLUMNS, {"amplitude": [0.3, 0.6]}, **RUN)
    (given, static), step = calls[0], network_kernel.step_in_kernels.__wrapped__
    made = jax.jit(functools.partial(step, **static)).trace(*given)
    assert "xla.gpu.triton" in made.lower(lowering_platforms=("cuda",)).as_text()
    grid, loop = given[1], static["loop"]
    assert not network_kernel.fits_kernel(training(), grid, loop)  # it is on a CPU
