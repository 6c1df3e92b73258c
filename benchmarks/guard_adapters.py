"""What a guard by replay costs in JAX, river and scikit-learn, on rows in no order.

    python benchmarks/guard_adapters.py

Processor time of a guarded run over that of a plain one, block by block in turns: in blocks in
which nothing was tested, and in all. Each setting is left alone by the guard.
"""

from __future__ import annotations

import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from river import linear_model, optim, preprocessing
from sklearn.neural_network import MLPRegressor

import resonax
import resonax.jax
from resonax.guards.replay_run import ReplayRun

BLOCK = 48
Step = Callable[[Any], object]
Made = tuple[Step, Step, Callable[[], ReplayRun], Iterator[Any]]


def batches(rows: int, dim: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    while True:
        x = rng.standard_normal((rows, dim), np.float32)
        yield x, x[:, 0] + 0.1 * rng.standard_normal(rows).astype(np.float32)


def jax_network(width: int, rows: int) -> Made:
    def loss_fn(params: Any, batch: Any) -> Any:
        x, y = batch
        for one in params[:-1]:
            x = jax.nn.relu(x @ one)
        return jnp.mean(((x @ params[-1])[:, 0] - y) ** 2)

    rng = np.random.default_rng(1)
    sizes = [(64, width), (width, width), (width, 1)]
    start = [rng.standard_normal(size, np.float32) * (2 / size[0]) ** 0.5 for size in sizes]
    optimizer = optax.inject_hyperparams(optax.adam)(1e-4)
    guard = resonax.jax.guard(loss_fn, optimizer, speak=False)
    state = guard.init(start)
    params, opt_state = state.params, state.opt_state

    @jax.jit
    def train(params: Any, opt_state: Any, batch: Any) -> tuple[Any, Any, Any]:
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    def plain(batch: Any) -> None:
        nonlocal params, opt_state
        params, opt_state, _ = jax.block_until_ready(train(params, opt_state, batch))

    def guarded(batch: Any) -> None:
        nonlocal state
        state, info = guard.update(state, batch)
        jax.block_until_ready((state.params, info.loss))

    return plain, guarded, lambda: state.run, batches(rows, 64)


def river_rows() -> Made:
    def made() -> Any:
        scaler = preprocessing.StandardScaler()
        return scaler | linear_model.LinearRegression(optim.Momentum(0.003, 0.9))

    def rows() -> Iterator[Any]:
        for x, y in batches(16, 10):
            named = [dict(enumerate(row)) for row in x.tolist()]
            yield list(zip(named, y.tolist(), strict=True))

    model, guard = made(), resonax.Guard(made())

    def plain(group: Any) -> None:
        for x, y in group:
            model.predict_one(x)
            model.learn_one(x, y)

    def guarded(group: Any) -> None:
        for x, y in group:
            guard.learn(x, y)

    return plain, guarded, lambda: guard._run, rows()


def sklearn_network() -> Made:
    def made() -> Any:
        return MLPRegressor(hidden_layer_sizes=(64,), solver="sgd", random_state=0)

    model, guard = made(), resonax.Guard(made())
    plain = lambda batch: model.partial_fit(*batch)  # noqa: E731
    return plain, lambda batch: guard.learn(*batch), lambda: guard._run, batches(32, 20)


def timed(step: Step, given: list[Any]) -> float:
    begin = time.process_time()
    for one in given:
        step(one)
    return time.process_time() - begin


def measure(name: str, made: Made, steps: int) -> None:
    plain, guarded, run, stream = made
    for one in (next(stream) for _ in range(BLOCK)):  # programs are compiled
        plain(one)
        guarded(one)
    calm, whole, usual = [], [0.0, 0.0], []
    for _ in range(steps // BLOCK):
        given = [next(stream) for _ in range(BLOCK)]
        before = len(run().judged)
        times = timed(plain, given), timed(guarded, given)
        whole = [sum(pair) for pair in zip(whole, times, strict=True)]
        usual.append(times[0] / BLOCK)
        if len(run().judged) == before:
            calm.append(times[1] / times[0])
    end = run()
    acted = f", {len(end.events)} changes" if end.events else ""
    print(
        f"{name}: a plain step {1e6 * statistics.median(usual):.0f} us, guarded in calm "
        f"{statistics.median(calm):.2f} times, over {end.state.step} steps "
        f"{whole[1] / whole[0]:.2f} times{acted}; memory {end.memory / 2**20:.1f} MiB"
    )


def main() -> None:
    logging.getLogger("resonax").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    measure("jax, 4 thousand weights, batch of 16", jax_network(32, 16), 1000)
    measure("jax, 1.05 million weights, batch of 64", jax_network(992, 64), 192)
    measure("river, steps of 16 rows", river_rows(), 1000)
    measure("scikit-learn, batch of 32", sklearn_network(), 500)


if __name__ == "__main__":
    main()
