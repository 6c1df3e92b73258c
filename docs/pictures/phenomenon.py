"""The phenomenon in one picture: the same inputs in three orders, and the map that predicts it.

Trains with optax itself; resonax only says what should happen. Run: make docs-pictures
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import optax

import resonax as rx
from resonax.core.labels import axis_label
from resonax.figures import save_figure
from resonax.figures.map import add_scale, paint
from resonax.figures.style import STYLE, new_figure

LR, MOMENTUM, BATCH, STEPS, RUNS = 0.01, 0.97, 20, 6000, 20
STREAMS = {
    "period 22": (rx.Sinusoid(period=22), "#b2182b", "o", "-"),
    "period 30": (rx.Sinusoid(period=30), "#2166ac", "s", "-"),
    "shuffled": (rx.shuffled(rx.Sinusoid(period=22)), "#4d4d4d", None, "--"),
}


def train(process, key):
    """Return the distance to the target at every step of a linear regression with optax.sgd."""
    data_key, noise_key, start_key = jax.random.split(key, 3)
    inputs = process.sample(data_key, STEPS, BATCH)
    features = jnp.concatenate([inputs, jnp.ones_like(inputs)], axis=-1)
    noise = 0.1 * jax.random.normal(noise_key, features.shape[:2])
    target, start = jax.random.uniform(start_key, (2, 2), minval=-1.0)
    optimizer = optax.sgd(LR, momentum=MOMENTUM)

    def step(carry, data):
        weights, state = carry
        batch, error = data

        def loss(weights):
            return jnp.mean((batch @ (weights - target) - error) ** 2)

        updates, state = optimizer.update(jax.grad(loss)(weights), state)
        weights = optax.apply_updates(weights, updates)
        return (weights, state), jnp.linalg.norm(weights - target)

    return jax.lax.scan(step, (start, optimizer.init(start)), (features, noise))[1]


def main() -> None:
    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(LR, MOMENTUM), batch=BATCH)
    dataset = rx.stability_map(
        setting, "map", momentum=np.linspace(0.95, 0.999, 120), period=np.linspace(15, 60, 181)
    )
    with matplotlib.rc_context(STYLE):
        figure = new_figure(11.0, 4.2)
        left, right = figure.subplots(1, 2, width_ratios=[1.0, 1.15])
        for name, (process, colour, _, dashes) in STREAMS.items():
            keys = jax.random.split(jax.random.key(0), RUNS)
            curves = np.asarray(jax.vmap(lambda key, process=process: train(process, key))(keys))
            # Root mean square over 60 steps: the swing itself is too quick for the eye.
            smooth = np.sqrt((curves.reshape(RUNS, -1, 60) ** 2).mean(axis=2))
            time = np.arange(smooth.shape[1]) * 60 + 30
            left.semilogy(time, smooth.T, color=colour, lw=0.6, alpha=0.25)
            median = np.median(smooth, axis=0)
            left.semilogy(time, median, dashes, color=colour, lw=2.2, label=name)
        left.set_xlabel("training step")
        left.set_ylabel("distance to the best weights")
        left.set_title("The same inputs, in three orders")
        left.legend(loc="upper left")
        image = paint(dataset, right)
        for process, colour, marker, _ in STREAMS.values():
            if marker:
                right.plot(
                    process.period, MOMENTUM, marker, color=colour, mec="white", ms=10, zorder=3
                )
        right.set_xlabel(axis_label("period"))
        right.set_ylabel(axis_label("momentum"))
        right.set_title("What resonax says before training")
        add_scale(figure, image, right)
    save_figure(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
