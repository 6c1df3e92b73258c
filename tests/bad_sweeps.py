"""A seeded generator of sweep files that cannot be run, one fault each."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

MAP: dict[str, Any] = {
    "id": "tiny",
    "title": "A title",
    "process": {"kind": "sinusoid", "amplitude": 0.5, "variance": 1.0},
    "model": {"kind": "linear"},
    "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    "train": {"batch": 20, "noise": 0.1},
    "run": {"runs": 3, "steps": 400, "window": 100},
    "axes": {
        "momentum": {"values": [0.9, 0.98]},
        "period": {"first": 20, "last": 40, "count": 4},
    },
    "theory": {"criteria": ["flow", "lyapunov"], "points": [2, 3]},
    "panels": [{"name": "one"}, {"name": "two", "optimizer": {"lr": 0.02}}],
    "smoke": {"run": {"steps": 200}},
}
NETWORK: dict[str, Any] = {
    "id": "net",
    "process": {"kind": "switching", "variance": 0.1, "dim": 2},
    "model": {"kind": "network", "hidden": [20, 20]},
    "optimizer": {"kind": "optax.rmsprop", "lr": 0.01, "decay": 0.9},
    "train": {"batch": 10, "noise": 0.1},
    "run": {"runs": 2, "steps": 400, "window": 100},
    "axes": {"amplitude": {"values": [0.1, 0.4], "root": True}, "period": {"values": [0, 5, 10]}},
    "panels": [{"name": "a", "train": {"noise": 0.2}, "limits": {"period": [0, 5]}}],
}

FAULTS: list[Callable[[random.Random], bytes]] = []


def fault(make: Callable[[random.Random], bytes | dict[str, Any]]) -> Any:
    """Add a kind of fault; a table is written as TOML."""

    def written(rng: random.Random) -> bytes:
        made = make(rng)
        return made if isinstance(made, bytes) else to_toml(made)

    written.__name__ = make.__name__
    FAULTS.append(written)
    return make


def bad_sweeps(count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield the name of a fault and a file that has it, every kind in turn."""
    rng = random.Random(seed)
    for number in range(count):
        make = FAULTS[number % len(FAULTS)]
        yield f"{number}: {make.__name__}", make(rng)


def entry(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {entry(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(entry, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    return json.dumps(value)


def to_toml(table: dict[str, Any]) -> bytes:
    """Return a table as a TOML file."""
    return "".join(f"{json.dumps(k)} = {entry(v)}\n" for k, v in table.items()).encode()


def put(path: str, value: Any, base: dict[str, Any] = MAP) -> dict[str, Any]:
    """Return a good table with one entry replaced, by a dotted path."""
    table = copy.deepcopy(base)
    home: Any = table
    *names, last = path.split(".")
    for name in names:
        home = home[int(name)] if isinstance(home, list) else home.setdefault(name, {})
    home[last] = value
    return table


HUGE = 10**400
NO_NUMBER = ["abc", "1", True, [], {}, ["a"], {"a": 1}, math.nan, math.inf, date(2020, 1, 1), HUGE]
NO_WHOLE = [*NO_NUMBER, 1.5, [1], -1, 0]
NO_TEXT = [1, True, [], {}, 1.5, ["a"], date(2020, 1, 1)]
NO_TABLE = [1, "abc", True, [1], 1.5, ["kind"], [{"kind": "linear"}]]
NUMBERS = {
    "optimizer.lr": [0, -1, 1e7],
    "optimizer.dampening": [1, -0.1],
    "optimizer.weight_decay": [-1, 1e9],
    "process.amplitude": [-1, 1e9],
    "process.swing": [-1, 21],
    "process.phase": [1e9],
    "train.noise": [-1, 1e20],
    "train.start": [0, -1, 1e7],
    "axes.period.first": [0.5, -3, 1e6],
    "axes.period.last": [-1, 1e6],
    "panels.0.optimizer.lr": [0, -2],
    "panels.1.train.noise": [-1],
    "panels.1.process.amplitude": [-1],
    "smoke.optimizer.lr": [0, -1],
}
WHOLE = {
    "run.runs": [10**6, 2**33],
    "run.steps": [20, 41, 2**33, 4 * 10**18],
    "run.window": [10, 30, 400],
    "train.batch": [10**10],
    "process.dim": [1001, 24],
    "chunk": [10**6],
    "axes.period.count": [10**6],
    "panels.0.run.runs": [4, 10**9],
    "panels.0.run.steps": [41, 2**40],
    "panels.0.train.batch": [10**10],
    "smoke.run.steps": [41, 2**33],
}
TEXTS = ["id", "title", "paper", "caption", "panels.0.name", "panels.0.reading"]
TABLES = ["process", "model", "optimizer", "train", "run", "axes", "theory", "smoke"]


@fault
def wrong_type_of_a_number(rng):
    path = rng.choice(list(NUMBERS))
    return put(path, rng.choice(NO_NUMBER))


@fault
def number_out_of_range(rng):
    path = rng.choice(list(NUMBERS))
    return put(path, rng.choice(NUMBERS[path]))


@fault
def wrong_type_of_a_whole_number(rng):
    return put(rng.choice(list(WHOLE)), rng.choice(NO_WHOLE))


@fault
def whole_number_out_of_range(rng):
    path = rng.choice(list(WHOLE))
    return put(path, rng.choice(WHOLE[path]))


@fault
def wrong_type_of_a_text(rng):
    return put(rng.choice(TEXTS), rng.choice(NO_TEXT))


@fault
def wrong_type_of_a_table(rng):
    prefix = rng.choice(["", "panels.0.", "panels.1."])
    names = TABLES if not prefix else ["process", "model", "optimizer", "train", "run", "limits"]
    return put(prefix + rng.choice(names), rng.choice(NO_TABLE))


@fault
def wrong_type_of_panels(rng):
    return put("panels", rng.choice([1, "a", [], {}, [1], ["a"], [[]], {"name": "a"}, [{}]]))


@fault
def unknown_key(rng):
    homes = ["", *(f"{name}." for name in TABLES)]
    homes += [f"panels.1.{name}." for name in ("process", "model", "optimizer", "train", "run")]
    homes += ["panels.0.", "axes.period.", "panels.0.limits.", "theory.process."]
    homes += ["smoke.run.", "smoke.axes.period.", "panels.0.smoke.", "panels.0.smoke.run."]
    name = rng.choice(["colour", "stepps", "", "lr2", "__class__", "kind ", "\u202e", "a" * 5000])
    return put(rng.choice(homes) + name, rng.choice([1, "x", {}, [0, 1]]))


KINDS = ["", " ", "sinus", "Linear", "recorded", "__class__", "a" * 9999, "linear\n", "0", "os"]
OPTAX = [
    "lbfgs",
    "tree",
    "_src",
    "__name__",
    "contrib",
    "chain",
    "sgd.x",
    "lamb",
    "lars",
    "muon",
    "noisy_sgd",
    "apply_updates",
]


@fault
def unknown_kind(rng):
    part = rng.choice(["process", "model", "optimizer", "panels.0.process", "panels.1.model"])
    return put(f"{part}.kind", rng.choice([*KINDS, *NO_TEXT]))


@fault
def unknown_optimizer(rng):
    name = rng.choice([*OPTAX, "".join(rng.choices("abcdef_.", k=8))])
    return put("optimizer.kind", "optax." + name, rng.choice([MAP, NETWORK]))


@fault
def missing_key(rng):
    table = copy.deepcopy(MAP)
    home, name = rng.choice(
        [
            (table, "id"),
            (table, "process"),
            (table, "optimizer"),
            (table, "axes"),
            (table["process"], "kind"),
            (table["optimizer"], "kind"),
            (table["optimizer"], "lr"),
            (table["axes"], "period"),
            (table["axes"]["period"], "first"),
            (table["axes"]["period"], "count"),
            (table["axes"]["momentum"], "values"),
            (table["panels"][0], "name"),
            (table["theory"], "criteria"),
        ]
    )
    del home[name]
    return table


@fault
def two_axes_that_are_not(rng):
    momentum, period = MAP["axes"]["momentum"], MAP["axes"]["period"]
    return put(
        "axes",
        rng.choice(
            [
                {},
                {"momentum": momentum},
                {"period": period, "momentum": momentum},
                {"lr": momentum, "period": period},  # lr is given as well
                {"momentum": momentum, "period": period, "amplitude": momentum},
                {"beta1": momentum, "period": period},
                {"momentum": momentum, "kind": period},
                {"momentum": momentum, "": period},
                {"momentum": [0.9, 0.98], "period": period},
                {"momentum": momentum, "seed": {"values": [1, 2]}},
            ]
        ),
    )


@fault
def axis_that_is_none(rng):
    return put(
        "axes." + rng.choice(["momentum", "period"]),
        rng.choice(
            [
                {},
                {"values": []},
                {"values": [0.5, 0.5]},
                {"values": [math.nan, 2]},
                {"values": [math.inf]},
                {"values": ["a"]},
                {"values": [True, False]},
                {"values": [[1, 2]]},
                {"values": [HUGE]},
                {"values": "0.9"},
                {"values": [0.9], "count": 3},
                {"values": [-1.0, -2.0], "root": True},
                {"values": [3.0, 4.0], "spacing": "log"},
                {"values": [0.99, 1.0, 0.5]},
                {"first": 0, "last": 5, "count": 3, "spacing": "log"},
                {"first": 0, "last": 5, "count": 3, "spacing": "inverse"},
                {"first": 3, "last": 4, "count": 3, "spacing": "cubic"},
                {"first": 20, "last": 20, "count": 5},
                {"first": 20, "last": 30, "count": 1},
                {"first": 1e-320, "last": 5, "count": 3, "spacing": "inverse"},
                {"first": -1e308, "last": 1e308, "count": 3},
                {"first": 20, "last": 40, "count": 3, "root": "yes"},
                {"values": list(range(2, 110_000))},
            ]
        ),
    )


@fault
def panels_that_differ_too_much(rng):
    return put(
        "panels",
        rng.choice(
            [
                [{"name": str(number)} for number in range(2000)],
                [{"name": str(number)} for number in range(25)],
                [{"name": "a"}, {"name": "a"}],
                [{"name": "a", "run": {"runs": 4}}, {"name": "b"}],
                [{"name": "a", "limits": {"lr": [0, 1]}}],
                [{"name": "a", "limits": {"period": [0, 1]}}],
                [{"name": "a", "limits": {"period": [40, 20]}}],
                [{"name": "a", "limits": {"period": [20]}}],
                [{"name": "a", "limits": {"period": "20"}}],
                [{"name": "a", "limits": {"period": [20, HUGE]}}],
                [{"name": "a", "optimizer": {"momentum": 0.9}}],
                [{"name": "a", "process": {"kind": "iid"}}],
                [{"name": "a", "process": {"kind": "ar2", "phase": 1.0}}],
                [{"name": "a", "process": {"dim": 2, "variance": [1.0, 2.0, 3.0]}}],
                [{"name": "a", "run": {"steps": 40, "window": 40}}],
                [{"name": "a", "model": {"kind": "network"}}],
                [{"name": "a", "smoke": {"smoke": 1}}],
            ]
        ),
    )


@fault
def inputs_of_no_shape(rng):
    dim, name, value = rng.choice(
        [
            (1, "variance", [1.0, 2.0]),
            (2, "variance", [[1.0, 0.0], [0.5, 1.0]]),
            (2, "variance", [[1.0, 2.0], [2.0, 1.0]]),
            (2, "variance", [1.0, -1.0]),
            (2, "variance", [1.0, "a"]),
            (2, "variance", ["1", "1"]),
            (2, "variance", [True, False]),
            (2, "variance", [[1.0], [1.0, 2.0]]),
            (2, "variance", [[[1.0]]]),
            (2, "variance", [1.0, HUGE]),
            (2, "direction", [0.0, 0.0]),
            (2, "direction", [1.0]),
            (2, "direction", 1.0),
            (2, "direction", "up"),
            (2, "direction", [math.nan, 1.0]),
        ]
    )
    return put("process", {**MAP["process"], "dim": dim, name: value})


@fault
def theory_that_cannot_be(rng):
    base = copy.deepcopy(MAP)
    base["theory"] = rng.choice(
        [
            {"criteria": []},
            {"criteria": ["guess"]},
            {"criteria": "flow"},
            {"criteria": ["flow", "flow"]},
            {"criteria": ["mean_square"], "points": [1, 2]},
            {"criteria": ["lyapunov"], "points": [-1, 2]},
            {"criteria": ["lyapunov"], "points": [0, 0]},
            {"criteria": ["lyapunov"], "points": [2**40, 2]},
            {"criteria": ["lyapunov"], "points": [2]},
            {"criteria": ["lyapunov"], "points": [2.5, 2.5]},
            {"criteria": ["flow"], "process": {"kind": "ar2"}},
            {"criteria": ["flow"], "process": {"kind": "tides"}},
            {"criteria": ["flow"], "process": {"kind": "sinusoid", "dim": 3}},
            {"criteria": ["flow"], "process": {"kind": "iid"}},
            {"criteria": ["flow"], "process": {"amplitude": 0.5}},
        ]
    )
    return base


@fault
def theory_of_something_else(rng):
    return rng.choice(
        [
            put("theory", {"criteria": ["flow"]}, NETWORK),
            put("axes.period", {"values": [0, 20]}),
            put("axes.period", {"values": [20]}),
            put("axes", {"noise": {"values": [0.1, 0.2]}, "period": MAP["axes"]["period"]}),
            put("optimizer", {"kind": "optax.sgd", "lr": 0.1}),
        ]
    )


@fault
def more_than_there_is_room_for(rng):
    many = {"first": 20, "last": 40, "count": 100_000}
    shift = {"first": 0.0, "last": 0.98, "count": 99_000}
    return rng.choice(
        [
            put("model.hidden", [4096] * 4, NETWORK),
            put("model.hidden", [5000], NETWORK),
            put("model.hidden", [20] * 9, NETWORK),
            put("model.hidden", [], NETWORK),
            put("model.hidden", 20, NETWORK),
            put("model.hidden", ["20"], NETWORK),
            put("model.hidden", [0], NETWORK),
            put("model.hidden", [HUGE], NETWORK),
            put("model.hidden", [20.5], NETWORK),
            put("train.batch", 10**6, NETWORK),
            put("process.dim", 1000, NETWORK) | {"train": {"batch": 300}},
            put("train.batch", 10**5) | {"model": {"kind": "polynomial"}},
            put("train.batch", 10**4) | {"model": {"kind": "fourier", "frequencies": [[1.0]]}},
            put("process.dim", 24),
            put("process.dim", 8) | {"model": {"kind": "polynomial", "degree": 3}},
            put("axes", {"momentum": shift, "period": many}) | {"theory": {"criteria": ["flow"]}},
            put("run", {"runs": 10**5, "steps": 10**8, "window": 100}),
            put("axes.period", many) | {"run": {"runs": 10**5, "steps": 400, "window": 100}},
            put("run", {"runs": 3, "steps": 2 * 10**6, "window": 100}),  # not in 32 bits
            {
                **put("process", {"kind": "iid"}, NETWORK),
                "axes": {"lr": {"values": [1]}, "batch": {"first": 1, "last": 50, "count": 50}},
                "model": {"kind": "linear"},
                "optimizer": {"kind": "sgd"},
                "train": {},
                "panels": [{"name": "a"}],
            },
        ]
    )


@fault
def model_of_no_shape(rng):
    return put(
        "model",
        rng.choice(
            [
                {"kind": "polynomial", "degree": 9},
                {"kind": "polynomial", "degree": 0},
                {"kind": "polynomial", "degree": 1.5},
                {"kind": "fourier"},
                {"kind": "fourier", "frequencies": [1.0]},
                {"kind": "fourier", "frequencies": [[1.0, 2.0]]},
                {"kind": "fourier", "frequencies": [["a"]]},
                {"kind": "fourier", "frequencies": [[math.inf]]},
                {"kind": "fourier", "frequencies": []},
                {"kind": "fourier", "frequencies": [[float(number)] for number in range(12)]},
                {"kind": "radial", "centers": [[1.0]], "width": 0},
                {"kind": "radial", "centers": [[1.0]], "width": "wide"},
                {"kind": "radial", "centers": {"a": 1}},
                {"kind": "linear", "bias": 1},
                {"kind": "linear", "hidden": [20]},
                {"kind": "network", "degree": 2},
            ]
        ),
    )


@fault
def text_that_is_none(rng):
    path = rng.choice(["title", "paper", "panels.0.name"])
    text = rng.choice(
        [
            "\x00",
            "a\x00b",
            "\x1b[31m",
            "a\nb",
            "\u202e",
            "\u2028",
            "x" * 5000,
            "x" * 900_000,
            "\x7f",
        ]
    )
    return put(path, text)


@fault
def id_that_is_no_name(rng):
    return put("id", rng.choice(["", "../x", "A", "a b", "a/b", "-a", "a" * 65, "a\n", "ü", "."]))


@fault
def id_or_caption_too_long(rng):
    path = rng.choice(["caption", "panels.0.reading", "id"])
    return put(path, "x" * rng.choice([4001, 50_000]))


GOOD = to_toml(MAP)


@fault
def cut_off(rng):
    return GOOD[: rng.randrange(GOOD.index(b'"axes"') + 20)]


@fault
def letters_lost_or_doubled(rng):
    marks = [place for place, letter in enumerate(GOOD) if letter in b'={}[]"']
    place = rng.choice(marks)
    return GOOD[:place] + rng.choice([b"", b"@", b"==", b"\x00", b"\xff"]) + GOOD[place + 1 :]


@fault
def nested_without_end(rng):
    deep = rng.choice([50, 3000, 100_000])
    return rng.choice(
        [
            GOOD + b"deep = " + b"[" * deep + b"]" * deep,
            GOOD + b"deep = " + b"{a=" * deep + b"1" + b"}" * deep,
            GOOD + b".".join([b"a"] * min(deep, 3000)) + b" = 1",
            GOOD + b"[" + b".".join([b"a"] * min(deep, 3000)) + b"]\n",
            put("process.variance", json.loads("[" * 40 + "]" * 40))
            and to_toml(put("process.variance", json.loads("[" * 40 + "1" + "]" * 40))),
        ]
    )


@fault
def numbers_without_end(rng):
    digits = b"9" * rng.choice([20, 400, 4301, 100_000])
    name = rng.choice(
        ["run.runs", "optimizer.lr", "train.batch", "axes.period.last", "process.dim"]
    )
    return to_toml(put(name, "DIGITS")).replace(b'"DIGITS"', digits)


@fault
def of_another_encoding(rng):
    text = GOOD.decode()
    return rng.choice(
        [
            text.encode("utf-16"),
            text.encode("utf-32"),
            text.replace("A title", "größe").encode("latin-1"),
            b"\xff\xfe" + GOOD,
            rng.randbytes(200),
            b"",
            b"\x00" * 100,
            b"%PDF-1.7\n",
            b"{}",
            b"id = 'a'\r",
            GOOD + b"x" * 1_000_001,
            GOOD + GOOD,
        ]
    )
