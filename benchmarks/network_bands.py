"""Periods at which alternating domains harm networks under AdamW, measured and predicted.

    python benchmarks/network_bands.py prepare data.npz
    python benchmarks/network_bands.py measure data.npz [--scale full] [--out OUT] [--only NAME]
    python benchmarks/network_bands.py predict data.npz [--out OUT] [--only NAME] [--lr 0.003]
    python benchmarks/network_bands.py keep OUT [OUT ...] --out FILE
    python benchmarks/network_bands.py table FILE

Batches come half a period from one domain and half from the other; at period 0 each batch holds
both. All runs of a network (seed, period, beta1, lr) are one program. Measured is the mean loss of
both domains over the second half of the steps, on fresh samples of what is trained on, against
that at period 0. ``prepare`` collects the data from installed packages, for machines without them.
``predict`` trains some of the runs again, and asks the theory at their states, halfway: of mixed
runs ("initial") and of runs with some periods ("own"). ``keep`` reduces the results to a file,
from which ``table`` compares them and ``docs/pictures/networks.py`` draws. What momentum adds is
the excess less that at the lowest beta1. It has a peak where its largest value lies inside the
range of periods and above 0 by twice the standard error; the peak lies in the predicted band if the
theory predicts at least half of its own peak there.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from network_tasks import Domains, Network, Params, combinations, prepare
from network_theory import ATTEMPTS, Adaptive, peak_of, predict, sample

WARM_UP, BETA2, DECAY = 100, 0.95, 0.01
STABLE = 1e-4  # growth per step below which nothing is called unstable
EVERY = 13  # steps between evaluations: no divisor of a period, so that all phases are met


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    periods: tuple[int, ...] = (0, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512)
    beta1: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.98)
    lr: tuple[float, ...] = (1e-3, 3e-3)
    seeds: int = 3
    steps: int = 1040
    width: int = 96
    layers: int = 3
    batch: int = 16
    evaluated: int = 64  # rows of each domain
    chunk: int = 5 * EVERY  # steps between two lines of progress
    directions: int = 48
    sampled: int = 6  # batches of each domain that curvatures are taken from
    gradients: int = 64  # batches of each domain that gradients are taken from
    own: tuple[int, ...] = (48,)  # periods of runs at whose own state a prediction is made


SCALES = {
    "full": Scale(),
    "smoke": Scale(
        (0, 4, 16), (0.5, 0.95), (3e-3,), 1, 130, 16, 1, 4, 8, directions=12, gradients=4, own=(16,)
    ),
}


# Training: all runs at once.


class Run(NamedTuple):
    """What differs from run to run."""

    lr: Array
    beta1: Array
    period: Array
    seed: Array


def loss_of(network: Network, params: Params, x: Array, y: Array) -> Array:
    losses = optax.softmax_cross_entropy_with_integer_labels(network.apply(params, x), y)
    return losses.mean()


def rows_of(period: Array, step: Array, batch: int) -> Array:
    """Return the domain of each row of a batch."""
    mixed = jnp.arange(batch) % 2
    ordered = (step % jnp.maximum(period, 1)) >= period / 2
    return jnp.where(period == 0, mixed, ordered.astype(int))


def optimizer(lr: Array | float, beta1: Array | float) -> optax.GradientTransformation:
    return optax.adamw(lr, b1=beta1, b2=BETA2, weight_decay=DECAY)  # pyrefly: ignore[bad-argument-type]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4,))
def train(
    network: Network, domains: Domains, scale: Scale, runs: Run, state: Any, start: Array
) -> tuple[Any, Array]:
    """Train all runs for some steps; returns states and losses, (evaluations, runs, domains)."""
    fresh = jnp.repeat(jnp.arange(2), scale.evaluated)
    test = domains.draw(jax.random.key(10**6), fresh)

    def one(run: Run, state: Any, step: Array) -> Any:
        params, moments = state
        key = jax.random.fold_in(jax.random.key(run.seed), step)
        x, y = domains.draw(key, rows_of(run.period, step, domains.rows * scale.batch))
        gradient = jax.grad(functools.partial(loss_of, network))(params, x, y)
        lr = run.lr * jnp.minimum(1.0, (step + 1) / WARM_UP)
        change, moments = optimizer(lr, run.beta1).update(gradient, moments, params)
        return optax.apply_updates(params, change), moments

    def judge(state: Any) -> Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(
            network.apply(state[0], test[0]), test[1]
        )
        return losses.reshape(2, -1).mean(1)

    def some(state: Any, first: Array) -> tuple[Any, Array]:
        each = lambda state, step: (jax.vmap(one, (0, 0, None))(runs, state, step), None)  # noqa: E731
        state, _ = jax.lax.scan(each, state, first + jnp.arange(EVERY))
        return state, jax.vmap(judge)(state)

    return jax.lax.scan(some, state, start + EVERY * jnp.arange(scale.chunk // EVERY))


def follow(
    name: str, network: Network, domains: Domains, scale: Scale, runs: Run, stop: int
) -> tuple[Any, np.ndarray]:
    """Train some runs; return their states and losses, (runs, evaluation, domain)."""
    params = jax.vmap(lambda s: network.init(jax.random.key(s)))(runs.seed)
    state: Any = (params, jax.vmap(optimizer(1e-3, 0.9).init)(params))
    found, begun = [], time.time()
    for start in range(0, stop, scale.chunk):
        state, some = train(network, domains, scale, runs, state, jnp.array(start))
        found.append(np.asarray(some))
        left = (time.time() - begun) * (stop / (start + scale.chunk) - 1)
        words = f"step {start + scale.chunk} of {stop}, about {left:.0f} s left"
        print(f"\r{name}: {words} ", end="", flush=True)
    print(f"\r{name}: {len(runs.seed)} runs, {stop} steps in {time.time() - begun:.0f} s", " " * 20)
    return state, np.concatenate(found).transpose(1, 0, 2)


def many(*axes: Sequence[float]) -> list[Array]:
    return [jnp.array(line) for line in zip(*itertools.product(*axes), strict=True)]


def measure(name: str, network: Network, domains: Domains, scale: Scale) -> dict[str, Any]:
    """Return the losses of all runs of a network, (lr, beta1, period, seed, evaluation, domain)."""
    axes = (scale.beta1, scale.periods, range(scale.seeds))
    losses, state = [], None
    for lr in scale.lr:
        beta1, period, seed = many(*axes)
        runs = Run(jnp.full(len(seed), lr), beta1, period, seed)
        state, some = follow(f"{name} lr {lr:g}", network, domains, scale, runs, scale.steps)
        losses.append(some.reshape(*(len(axis) for axis in axes), -1, 2))
    assert state is not None
    size = sum(leaf[0].size for leaf in jax.tree.leaves(state[0]))
    return {
        "name": name,
        "parameters": int(size),
        "dims": ["lr", "beta1", "period", "seed", "evaluation", "domain"],
        "lr": scale.lr,
        "beta1": scale.beta1,
        "period": scale.periods,
        "every": EVERY,
        "steps": scale.steps,
        "loss": np.round(np.stack(losses), 5).tolist(),
    }


def final(result: dict[str, Any]) -> np.ndarray:
    """Return the mean loss over the second half of the steps, (lr, beta1, period, seed)."""
    loss = np.array(result["loss"], dtype=float)
    return loss[..., loss.shape[-2] // 2 :, :].mean((-1, -2))


def foresee(name: str, network: Network, domains: Domains, scale: Scale) -> dict[str, Any]:
    """Return what the theory predicts at states of runs, halfway."""
    stop = scale.steps // 2 // scale.chunk * scale.chunk
    mixed = list(itertools.product(scale.lr, scale.beta1, (0,)))
    own = list(itertools.product(scale.lr, [b for b in scale.beta1 if b >= 0.9], scale.own))
    lr, beta1, period = map(jnp.array, zip(*mixed, *own, strict=True))
    runs = Run(lr, beta1, period, jnp.zeros(len(lr), int))
    state, _ = follow(name, network, domains, scale, runs, stop)
    batches = sample(domains, domains.rows * scale.batch, scale.gradients)
    made = []
    for place, one in enumerate([*mixed, *own]):
        begun = time.time()
        params, square = jax.tree.map(lambda leaf, i=place: leaf[i], (state[0], state[1][0].nu))
        square = jax.tree.map(lambda leaf: leaf / (1 - BETA2**stop), square)
        form = Adaptive(one[0], one[1], BETA2, 1e-8, weight_decay=DECAY)
        at = (scale.periods[1:], scale.sampled, scale.directions, scale.steps // 2)
        found = predict(network, batches, params, square, form, *at)
        made.append(dict(zip(("lr", "beta1", "period"), one, strict=True)) | found)
        print(f"{name}: state {place + 1} of {len(lr)} in {time.time() - begun:.0f} s", flush=True)
    return {"name": name, "periods": scale.periods[1:], "step": stop, "states": made}


def keep(folders: Sequence[Path], path: Path) -> None:
    """Write what the table and the picture need of some folders: a part for each network and lr."""
    parts = []
    for measured in sorted(found for folder in folders for found in folder.glob("bands-*.json")):
        result = json.loads(measured.read_text())
        theory = measured.with_name(measured.name.replace("bands-", "theory-"))
        states = json.loads(theory.read_text())["states"] if theory.exists() else []
        for lr, loss in zip(result["lr"], final(result), strict=True):
            parts.append(
                {key: result[key] for key in ("name", "parameters", "beta1", "period")}
                | {"lr": lr, "loss": np.round(loss, 4).tolist()}
                | {"states": [_few_digits(state) for state in states if state["lr"] == lr]}
            )
    path.write_text(json.dumps(parts) + "\n")
    print(f"{path}: {len(parts)} networks and step sizes")


def _few_digits(state: dict[str, Any]) -> dict[str, Any]:
    def rounded(number: float | list[float]) -> Any:
        return [*map(rounded, number)] if isinstance(number, list) else float(f"{number:.4g}")

    keys = ("beta1", "period", "mixed", "alone", "rate", "rate_half", *ATTEMPTS)
    return {key: rounded(state[key]) for key in keys if key in state}


def _attempts(state: dict[str, Any]) -> list[str]:
    return [attempt for attempt in ATTEMPTS if attempt in state]


def added(excess: np.ndarray) -> np.ndarray:
    """Return what momentum adds to an excess, (beta1, period, ...): it less that at the first."""
    return excess - excess[0]


def compare(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how each prediction compares with what momentum adds, for each beta1 but the first."""
    periods, loss = np.array(part["period"][1:], float), np.array(part["loss"])
    excess = loss[:, 1:] - loss[:, :1]
    rows = []
    for state in part["states"]:
        i = part["beta1"].index(state["beta1"])
        if i == 0:
            continue
        seeds = added(excess)[i]
        more, error = seeds.mean(-1), seeds.std(-1, ddof=1) / np.sqrt(seeds.shape[-1])
        place = int(np.argmax(more))
        least = next(one for one in part["states"] if one["beta1"] == part["beta1"][0])
        for attempt in ("unstable", *_attempts(state)):
            if attempt == "unstable":
                predicted = np.maximum(np.array(state["rate"]) - STABLE, 0)
            else:
                predicted, without = np.array([state[attempt], least[attempt]], float)
                predicted = predicted - without if np.isfinite(without).all() else predicted
            found = peak_of(periods, predicted)
            rows.append(
                {
                    "state": "initial" if state["period"] == 0 else "own",
                    "attempt": attempt,
                    "lr": part["lr"],
                    "hump": 0 < place < len(periods) - 1 and more[place] > 2 * error[place],
                    "peak": periods[place],
                    "predicted": None if found is None else found[0],
                    "inside": found is not None and found[1] <= periods[place] <= found[2],
                    "ratio": state[attempt][place] / excess[i, place].mean()
                    if attempt in ATTEMPTS
                    else np.nan,
                }
            )
    return rows


def judge(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return in how many rows the measured peak lies in the predicted band, and how far off.

    For each step size, state and attempt: how many peaks there are, how many of them lie in the
    band and within a factor of 2, the median factor, and the median of predicted over measured
    excess at the peak.
    """
    lrs = sorted({row["lr"] for row in rows}, reverse=True)
    attempts = list(dict.fromkeys(row["attempt"] for row in rows))
    found = []
    for lr, state, attempt in itertools.product(lrs, ("initial", "own"), attempts):
        ours = {"lr": lr, "state": state, "attempt": attempt}
        humps = [row for row in rows if row["hump"] and row.items() >= ours.items()]
        far = [abs(np.log2((row["predicted"] or np.inf) / row["peak"])) for row in humps]
        found.append(
            ours
            | {
                "peaks": len(humps),
                "inside": sum(row["inside"] for row in humps),
                "close": int(np.sum(np.array(far) <= 1.01)),
                "factor": float(2 ** np.median(far)),
                "size": float(np.median([row["ratio"] for row in humps])),
            }
        )
    return found


def judge_stability(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often mixed batches and each domain alone are stable, and how rates settle.

    Of the states of mixed runs: how many are stable so, in how many of these alternation at some
    period is not, and how many rates and verdicts are the same with half the directions.
    """
    states = [one for part in parts for one in part["states"] if one["period"] == 0]
    calm = [one for one in states if max(one["mixed"], *one["alone"]) < STABLE]
    rate, half = (np.array([one[key] for one in states]) for key in ("rate", "rate_half"))
    return {
        "states": len(states),
        "calm": len(calm),
        "moved": sum(max(one["rate"]) > STABLE for one in calm),
        "rates": rate.size,
        "near": float(np.mean(np.abs(rate - half) < 1e-3)),
        "same": float(np.mean((rate > STABLE) == (half > STABLE))),
    }


def print_judgement(parts: list[dict[str, Any]]) -> None:
    """Print how predictions compare, and what is stable."""
    rows = [row for part in parts for row in compare(part)]
    print(
        "\nlr, state, attempt: peak in the predicted band; within a factor of 2; median factor; "
        "median of\npredicted over measured excess at the peak"
    )
    for one in judge(rows):
        print(
            f"{one['lr']:g} {one['state']:>8} {one['attempt']:>9}: {one['inside']} of "
            f"{one['peaks']}; {one['close']} of {one['peaks']}; {one['factor']:.2f}; "
            f"{one['size']:.2f}"
        )
    own = [row for row in rows if row["attempt"] == "averaged" and row["state"] == "initial"]
    print(f"momentum adds a peak in {sum(row['hump'] for row in own)} of {len(own)} rows")
    found = judge_stability(parts)
    print(
        f"mixed and alone are stable in {found['calm']} of {found['states']} states of mixed runs,"
        f"\nand in {found['moved']} of these alternation at some period is not\n"
        f"half the directions: rates within 0.001 in {found['near']:.0%} of {found['rates']} "
        f"cases, the same verdict in {found['same']:.0%}"
    )


def table(path: Path) -> None:
    """Print the excess loss of all networks, and how predictions compare."""
    parts = json.loads(path.read_text())
    for part in parts:
        heads = "".join(f"{period:>10}" for period in part["period"][1:])
        print(f"\n{part['name']}, {part['parameters']:,} parameters, lr {part['lr']:g}")
        print(f"beta1     mixed{heads}")
        for beta1, loss in zip(part["beta1"], np.array(part["loss"]), strict=True):
            excess = (loss[1:] - loss[0]).mean(-1)
            print(f"{beta1:>5}{loss[0].mean():10.3f}" + "".join(f"{one:10.3f}" for one in excess))
        for state in part["states"]:
            print(f"  theory, beta1 {state['beta1']:g}, at the state of period {state['period']}")
            for key, scale in (("rate", 1e3), *((attempt, 1.0) for attempt in _attempts(state))):
                line = "".join(f"{scale * one:10.3g}" for one in state[key])
                print(f"    {key:>11}{line}")
    if any(part["states"] for part in parts):
        print_judgement(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=("prepare", "measure", "predict", "keep", "table"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--out", type=Path, default=Path("bands"))
    parser.add_argument("--only", default="", help="names of networks that contain this")
    parser.add_argument("--lr", type=float, nargs="+", help="step sizes, in place of the scale's")
    options = parser.parse_args()
    first = options.paths[0]
    if options.command == "prepare":
        prepare(first)
    elif options.command == "keep":
        keep(options.paths, options.out)
    elif options.command == "table":
        table(first)
    else:
        work_on(first, options)


def work_on(data: Path, options: argparse.Namespace) -> None:
    """Measure or predict, network by network; those that are done already are left out."""
    options.out.mkdir(parents=True, exist_ok=True)
    scale = SCALES[options.scale]
    scale = replace(scale, lr=tuple(options.lr)) if options.lr else scale
    work, prefix = (measure, "bands") if options.command == "measure" else (foresee, "theory")
    for name, network, domains in combinations(data, scale.width, scale.layers):
        path = options.out / f"{prefix}-{name}.json"
        if options.only in name and not path.exists():
            path.write_text(json.dumps(work(name, network, domains, scale)))


if __name__ == "__main__":
    main()
