"""The guard by replay on recordings: a linear model, one pass over real rows in their own order.

Run: python benchmarks/guard_recordings.py

Errors are mean squared errors over all rows of a recording, less that of its least-squares
solution, over the whole pass and over its last tenth; the output has variance 1. At the end the
ratio of what the guard offers to the best of the others, with the error of the least-squares
solution (prediction error) and without it.
"""

from __future__ import annotations

import guard_data
import numpy as np
from stream_runs import AVERAGED, OWN, PLAIN, config_of, guarded_run, numbers, plain_runs

LR = {"taylor": 0.03}  # 0.01 for the others


class Recorded:
    """A linear model of a recording, with a bias."""

    def __init__(self, rows: np.ndarray):
        rows = (rows - rows.mean(0)) / rows.std(0)
        self.x = np.column_stack([rows[:, :-1], np.ones(len(rows))])
        self.y = rows[:, -1]
        self.goal = np.linalg.lstsq(self.x, self.y, rcond=None)[0]
        self.covariance = self.x.T @ self.x / len(self.x)
        self.noise = float(np.mean((self.x @ self.goal - self.y) ** 2))

    def errors(self, weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return (x @ weights[..., None])[..., 0] - y

    def gradient(
        self, weights: np.ndarray, x: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        error = self.errors(weights, x, y)
        return (error**2).mean(-1), 2 / y.shape[-1] * (error[..., None, :] @ x)[..., 0, :]

    def excess(self, weights: np.ndarray) -> np.ndarray:
        away = weights - self.goal
        return np.sum((away @ self.covariance) * away, axis=-1)


def main() -> None:
    np.seterr(all="ignore")
    stored = guard_data.stored() or guard_data.recordings()
    names = [key.partition(" ")[2] for key in stored if key.startswith("recording ")]
    methods = (*PLAIN, AVERAGED, "guard", "guard, averaged")
    print(f"excess error over the whole pass and its last tenth, own momentum {OWN}")
    print(" " * 24 + "".join(f"{method:>20}" for method in methods))
    ratios = []
    for name in names:
        model = Recorded(stored[f"recording {name}"])
        lr, start = LR.get(name, 0.01), np.zeros(len(model.goal))
        x, y = model.x[:, None, None], model.y[:, None, None]
        plain = plain_runs(model, start, x, y, lr)[:, :, 0]
        batches = zip(x[:, 0], y[:, 0], strict=True)
        guarded, state = guarded_run(model, start, batches, lr, config_of(1, 0))
        ends = [numbers(one) for one in (*plain.T, *guarded.T)]
        cells = [f"{one['whole']:.2g} {one['end']:.2g}" for one in ends]
        print(f"{name:14} {len(x):6d} {lr:g}" + "".join(f"{one:>20}" for one in cells))
        for made in state.decisions:
            print(f"    step {made.step}, {made.why}: {made.after}")
        for key in ("whole", "end"):
            best = min(one[key] for one in ends[: len(PLAIN)])
            ratios += [(ends[-1][key] + noise) / (best + noise) for noise in (model.noise, 0.0)]
    for place, what in enumerate(("whole", "whole, no noise", "end", "end, no noise")):
        here = np.array(ratios[place::4])
        above = ", ".join(f"{n} {r:.2f}" for n, r in zip(names, here, strict=True) if r > 1.2)
        print(f"{what}: median {np.median(here):.2f}, largest {here.max():.2f}; above 1.2: {above}")


if __name__ == "__main__":
    main()
