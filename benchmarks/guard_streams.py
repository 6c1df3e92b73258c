"""The guard by replay over the periods of Experiments 3, 4 and 6, against constants and remedies.

Run: python benchmarks/guard_streams.py [switching|square|sinusoid|network ...] [--every N]
    [--seeds FIRST:LAST] [--kinds plain guard fastest] [--processes N] [--results FILE.jsonl]
    [--show]

A run is judged by its prediction error on the law of the inputs less that of the noise, over all
steps and over the last tenth of them. The momentum of the guarded run is 0.95; what a guard offers
for prediction is the average of the weights, the weights or what was offered before, see
`resonax.guards.averaging.preferred`. Constants of the guard were chosen on seeds below 100. Methods
without a guard are trained side by side, on a GPU if there is one: ``--kinds plain --processes 1``.
"""

from __future__ import annotations

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from stream_models import LR, NOISE, STREAMS, model_of, rows
from stream_runs import AVERAGED, FIXED, PLAIN, config_of, guarded_run, numbers, plain_runs

CHUNK = 128  # periods that are trained side by side, on a GPU if there is one


def plain(name: str, periods: list[int], seed: int) -> list[dict[str, Any]]:
    """Train all methods without a guard, all periods side by side."""
    stream = STREAMS[name]
    model = model_of(stream, seed)
    data = [rows(stream, period, seed) for period in periods]
    x, y = (np.stack(part, axis=1) for part in zip(*data, strict=True))
    errors = plain_runs(model, model.begin(seed), x, y, LR, stream.judged)
    return [
        row(name, period, method, seed, errors[:, place, column])
        for place, method in enumerate((*PLAIN, AVERAGED))
        for column, period in enumerate(periods)
    ]


def row(name: str, period: int, method: str, seed: int, errors: np.ndarray) -> dict[str, Any]:
    """Return what is kept of a run."""
    made = {"stream": name, "period": period, "method": method, "seed": seed}
    return made | numbers(errors)


def guarded(name: str, period: int, seed: int, kind: str, **options: Any) -> list[dict[str, Any]]:
    """Train one guarded run; ``options`` of `ReplayConfig` for trials."""
    stream = STREAMS[name]
    model = model_of(stream, seed)
    policy = "safe" if kind == "guard" else kind
    config = config_of(stream.batch, seed, policy=policy, **options)
    batches = zip(*rows(stream, period, seed), strict=True)
    errors, state = guarded_run(model, model.begin(seed), batches, LR, config, stream.judged)
    more = {
        "work": state.work / stream.steps,
        "tests": state.tests,
        "setting": str(config.candidates[state.place]),
        "decisions": [(d.step, d.why, str(d.after)) for d in state.decisions],
    }
    return [
        row(name, period, method, seed, errors[:, place]) | more
        for place, method in enumerate((kind, f"{kind}, averaged"))
    ]


def job(kind: str, name: str, periods: list[int], seed: int, options: dict[str, Any]) -> Any:
    """Do a part of the work."""
    with np.errstate(all="ignore"):
        if kind == "plain":
            return plain(name, periods, seed)
        return [one for period in periods for one in guarded(name, period, seed, kind, **options)]


def table(found: list[dict[str, Any]]) -> dict[str, dict[str, np.ndarray]]:
    """Return (methods) -> key -> (periods, seeds)."""
    periods = sorted({one["period"] for one in found})
    seeds = sorted({one["seed"] for one in found})
    made: dict[str, dict[str, np.ndarray]] = {}
    for one in found:
        for key in ("whole", "end", "largest", "work"):
            if key in one:
                place = made.setdefault(one["method"], {}).setdefault(
                    key, np.full((len(periods), len(seeds)), np.nan)
                )
                place[periods.index(one["period"]), seeds.index(one["seed"])] = one[key]
    return made


def show(found: list[dict[str, Any]]) -> None:
    """Print medians over seeds, and how far the guard is from the best of the others."""
    for name in dict.fromkeys(one["stream"] for one in found):
        mine = [one for one in found if one["stream"] == name]
        periods = np.array(sorted({one["period"] for one in mine}))
        made = table(mine)
        lost = 10.0 if STREAMS[name].is_network else 1e3
        print(f"\n{name}: {len(periods)} periods, {len({o['seed'] for o in mine})} seeds")
        for key in ("whole", "end"):
            middle = {m: np.nanmedian(v[key], axis=1) for m, v in made.items()}
            others = [m for m in PLAIN if m in middle] or list(middle)
            best = np.min([middle[m] for m in others], axis=0)
            own = np.asarray(middle.get("0.95", best))
            iid = periods == 0
            resonant = (own > 1.5 * own[iid]) & ~iid
            print(f"  excess, {key}: iid, median and largest over ordered periods, over the best")
            for method, values in middle.items():
                ratio, full = values / best, (values + NOISE) / (best + NOISE)
                gone = int((made[method]["end"] > lost).sum())
                there = np.median(values[resonant]) if resonant.any() else math.nan
                print(
                    f"    {method:16} iid {values[iid][0]:8.3g} ({ratio[iid][0]:5.2f})  resonant "
                    f"{there:8.3g}  ordered {np.median(values[~iid]):8.3g} {values.max():8.3g}  "
                    f"ratio {np.median(ratio):6.2f} {ratio.max():8.3g}  with noise "
                    f"{np.median(full):5.2f} {full.max():7.3g} within 1.2 at "
                    f"{np.mean(full <= 1.2):4.0%}  lost {gone}"
                )
        _show_single(made, periods)
        guards = [one for one in mine if one["method"] == "guard"]
        iid = [one for one in guards if one["period"] == 0]
        kept = sum(not one["decisions"] for one in iid)
        if guards:
            print(
                f"  {kept} of {len(iid)} iid runs left alone; extra work "
                f"{np.median([one['work'] for one in guards]):.2f} steps a step (median), "
                f"{max(one['work'] for one in guards):.2f} (most)"
            )


def _show_single(made: dict[str, dict[str, np.ndarray]], periods: np.ndarray) -> None:
    """Print how single runs, of what is offered, compare with the best of the others."""
    if "guard, averaged" not in made or not all(method in made for method in PLAIN):
        return
    for key in ("whole", "end"):
        best = np.min([made[method][key] for method in PLAIN], axis=0)
        offered = made["guard, averaged"][key]
        ratio, full = offered / best, (offered + NOISE) / (best + NOISE)
        iid = (made["guard"][key] + NOISE) / (made["0.95"][key] + NOISE)
        print(
            f"  single runs, {key}: offered over the best {np.nanmax(ratio):.2f} (largest), within "
            f"1.2 in {np.nanmean(ratio <= 1.2):.0%}; with noise {np.nanmax(full):.2f}, "
            f"{np.nanmean(full <= 1.2):.0%}; iid, weights over own with noise "
            f"{np.nanmax(iid[periods == 0], initial=0):.2f} (largest)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(STREAMS))
    parser.add_argument("--every", type=int, default=1, help="only every N-th period")
    parser.add_argument("--periods", type=int, nargs="*", help="these periods only")
    parser.add_argument("--seeds", default="100:110", help="first and one after the last")
    parser.add_argument("--kinds", nargs="*", default=["plain", "guard"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--results", help="where rows are kept as they come; those there are read")
    parser.add_argument("--options", default="{}", help="of ReplayConfig, as JSON, for trials")
    parser.add_argument("--show", action="store_true", help="print what is there, train nothing")
    given = parser.parse_args()
    first, last = (int(part) for part in given.seeds.split(":"))
    store = Path(given.results) if given.results else None
    has = store is not None and store.exists()
    found = [json.loads(line) for line in store.read_text().splitlines()] if store and has else []
    done = {(one["stream"], one["period"], one["method"], one["seed"]) for one in found}
    jobs = []
    for seed in range(first, last):
        for name in given.names:
            periods = given.periods or list(STREAMS[name].periods)[:: given.every]
            for kind in given.kinds:
                method = FIXED[0] if kind == "plain" else kind
                left = [one for one in periods if (name, one, method, seed) not in done]
                size = CHUNK if kind == "plain" else 4
                parts = [left[k : k + size] for k in range(0, len(left), size)]
                jobs += [(kind, name, part, seed, json.loads(given.options)) for part in parts]
    jobs.sort(key=lambda one: one[1] != "network")  # the longest first
    if not given.show:
        with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
            for place, one in enumerate(as_completed([pool.submit(job, *one) for one in jobs])):
                found += one.result()
                if store is not None:
                    with store.open("a") as file:
                        file.writelines(json.dumps(line) + "\n" for line in one.result())
                print(f"\r{place + 1} of {len(jobs)} parts", end="", flush=True)
    show(found)


if __name__ == "__main__":
    main()
