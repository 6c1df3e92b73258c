"""The API of `resonax explore`: the numbers are those of the library, and so is the code."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import threading
import time

import numpy as np
import pytest
from starlette.testclient import TestClient

import resonax as rx
from bad_requests import AXES, GOOD, KNOWN, PORT, TOKEN
from resonax.dynamics.build import build_setting
from resonax.explore import details, theory
from resonax.explore.api_docs import PATHS
from resonax.explore.app import build_app
from resonax.explore.code import map_code, python_setting, setting_options
from resonax.explore.errors import Superseded
from resonax.explore.questions import parse_setting as read_setting
from resonax.explore.schema import describe
from resonax.explore.security import Site
from resonax.explore.work import Threads
from resonax.simulation.trajectories import _follow
from resonax.spec.kinds import KINDS
from resonax.spec.settings import check_setting
from resonax.store.saved import open_dataset
from resonax.theory.map import multipliers
from resonax.theory.search import nearest_safe


@pytest.fixture(scope="module")
def ask():
    with TestClient(build_app(Site(TOKEN, PORT)), base_url=f"http://127.0.0.1:{PORT}") as client:

        def ask(path: str, **body):
            answer = client.post(f"/api/{path}", json=body, headers=KNOWN)
            assert answer.status_code == 200, answer.text
            return answer.json()

        ask.get = lambda path: client.get(f"/api/{path}", headers=KNOWN)
        yield ask


def parse_setting(setting):
    return read_setting({"setting": setting})


MAPS = ("map", "flow", "mean_square", "lyapunov")


def _run(code: str) -> dict:
    """Run the Python that a page shows; return its names, and what it printed as ``said``."""
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return {**names, "said": out.getvalue()}


def test_the_schema_names_what_a_setting_takes(ask):
    schema = ask.get("schema").json()
    assert parse_setting(schema["default"])
    for process in schema["processes"]:
        fields = KINDS["process"][process["name"]].names
        assert set(process["numbers"]) == set(fields) - {"direction"}
    for optimizer in schema["optimizers"]:
        asked = {"process": "sinusoid", "period": 22, "optimizer": optimizer["name"]}
        every = {name: 0.5 for name in optimizer["numbers"] if name != "batch"}
        assert parse_setting({**asked, **every})  # it takes each of them
        problem = build_setting(check_setting({**asked, **every}))[0]
        assert set(optimizer["axes"]) <= set(problem.axes)
        assert optimizer["criteria"] == (["level"] if "beta2" in every else [*MAPS, "level"])
    for basis in schema["bases"]:
        assert parse_setting({**GOOD, "basis": basis["default"]})
    for name, number in schema["numbers"].items():
        if not number.get("flag"):
            assert number["minimum"] <= number["default"] <= number["maximum"], name


def test_what_the_first_page_asks_for_is_prepared_once(monkeypatch):
    asked = []
    parts = {theory: ("make_map", "judge"), details: ("follow_runs", "find_spectrum", "find_safe")}
    for module, names in parts.items():
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, name=name: asked.append(name))
    app = build_app(Site(TOKEN, PORT, warm=True))
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}") as client:
        client.get("/api/schema", headers=KNOWN)  # by a program, which may want nothing of it
        assert asked == []
        for _ in range(2):
            assert client.get(f"/?token={TOKEN}").status_code == 200
        for pool in app.state.threads._pools.values():
            pool.shutdown()
    coarse_and_fine = ["make_map"] * 2
    assert sorted(asked) == sorted([*coarse_and_fine, "judge", *parts[details]])


def test_the_docs_name_every_path(ask):
    routes = {
        (method, route.path)
        for route in build_app(Site(TOKEN, PORT)).routes
        for method in (route.methods or ())
        if route.path.startswith("/api/") and method != "HEAD"
    }
    assert routes == {(path.method, path.path) for path in PATHS}
    assert len(ask.get("docs").json()["paths"]) == len(PATHS)


def test_a_verdict_is_that_of_the_library_and_of_its_code(ask, cli, paper, monkeypatch):
    seen = []

    def once(setting, **_):  # the same setting each time: it is judged once
        seen.append(setting)
        return same

    same = rx.verdict(paper, paths=8, steps=512)  # as in the tests of the page
    for place in ("resonax.explore.theory.verdict", "resonax.theory.verdict"):
        monkeypatch.setattr(place, once)
    monkeypatch.setattr(rx, "verdict", once)
    found = ask("verdict", setting=GOOD)
    assert found["verdict"] == same.verdict == "diverges"
    for criterion in found["criteria"]:
        assert criterion["rate"] == same.intervals()[criterion["name"]][0]
        assert criterion["verdict"] == "diverges"
    assert _run(found["code"]["python"])["said"] == f"{same}\n"
    status, out, _ = cli(found["code"]["command"].removeprefix("resonax "))
    assert status == 1
    assert found["sentence"].removeprefix("diverges: ") in out
    assert [one.describe() for one in seen] == [paper.describe()] * 3
    # The largest multiplier is the radius of the map criterion.
    largest = max(abs(complex(one["real"], one["imag"])) for one in found["multipliers"]["values"])
    assert largest == pytest.approx(same.map.radius, rel=1e-9)


def test_each_answer_says_what_it_is_about_and_code_needs_no_answer(ask):
    run = {"steps": 40, "runs": 2, "seed": 3}
    asked = {"setting": GOOD, **AXES, "criterion": "map"}
    code = ask("code", **asked, **run)
    assert code.pop("asked") == {**asked, **run}
    for _ in range(2):  # computed, and kept
        found = ask("map", **asked)
        assert found["asked"] == asked
        assert found["code"] == code["map"]
    assert ask("runs", setting=GOOD, **run)["code"] == code["runs"]
    assert "rx.verdict(" in code["verdict"]["python"]
    options = {"lr": "0.1", "momentum": "0.5", "target": "y"}
    of_check = {"options": options, "name": "a b.csv", "example": False}
    found = ask("check/code", **of_check)
    assert found["asked"] == of_check
    wanted = "resonax check 'a b.csv' --lr 0.1 --momentum 0.5 --target y"
    assert found["code"]["command"] == wanted


def test_a_map_of_levels_has_whole_periods_and_so_do_its_code_and_its_command(ask, cli, tmp_path):
    adam = {"process": "sinusoid", "optimizer": "adam", "lr": 0.01, "noise": 1, "period": 12}
    x = {"name": "period", "first": 3, "last": 6, "count": 20}
    y = {"name": "beta1", "first": 0, "last": 0.5, "count": 2}
    found = ask("map", setting=adam, x=x, y=y)
    assert found["x"] == [3, 4, 5, 6]
    assert "period=[3, 4, 5, 6]" in found["code"]["python"]
    command = found["code"]["command"].removeprefix("resonax ")
    out = tmp_path / "map.nc"
    status, said, _ = cli(command.replace("--plot map.png", f"--out {out}"))
    assert status == 0
    assert "4 whole periods for 20 points" in said
    saved = rx.load(out)
    assert saved.period.values.tolist() == found["x"]
    assert saved.distance.values.tolist() == found["distance"]


@pytest.mark.parametrize("process", ["iid", "sinusoid", "square", "ar2", "switching"])
def test_only_inputs_that_never_repeat_are_said_to(monkeypatch, process):
    monkeypatch.setattr(theory, "verdict", functools.partial(rx.verdict, steps=64))
    monkeypatch.setattr(theory, "_PATHS", 8)
    period = {} if process == "iid" else {"period": 22.0}
    found = theory.judge(
        lambda *_: None, {"process": process, "lr": 0.01, "momentum": 0.5} | period
    )
    repeats = process in ("iid", "sinusoid", "square")
    assert (found["multipliers_missing"] is None) is repeats
    assert (found["multipliers"] is not None) is repeats


@pytest.mark.parametrize("period", [22.0, 22.5, 15 + 5 / 11])
def test_multipliers_leave_the_circle_where_the_rate_turns(paper, period):
    for momentum in (0.9, 0.97, 0.99):
        setting = paper.at({"period": period, "momentum": momentum})
        found = multipliers(setting)
        rate = rx.rates(setting, {"momentum": [momentum]}, "map")[0]
        assert np.log(np.abs(found.values[0])) * found.turns / found.steps == pytest.approx(
            rate, abs=1e-9
        )
        # Liouville: the determinant of each update is momentum^2.
        product = np.prod(np.abs(found.values))
        assert product == pytest.approx(momentum ** (2 * found.steps / found.turns), rel=1e-6)


def test_a_map_is_that_of_the_library_and_of_its_code(ask, cli, tmp_path):
    found = ask("map", setting=GOOD, **AXES)
    assert np.shape(found["rate"]) == (4, 4)  # rows along y
    run = _run(found["code"]["python"])["found"]
    assert run.rate.dims == ("momentum", "period")
    assert np.array_equal(run.rate.values, found["rate"])
    assert (tmp_path / "map.png").stat().st_size > 1000
    line = f"{found['code']['command'].removeprefix('resonax ')} --out map.nc"
    assert cli(line)[0] == 0
    stored = open_dataset(tmp_path / "map.nc").rate
    assert np.array_equal(stored.transpose("momentum", "period").values, found["rate"])


CODES = {
    "plain": GOOD,
    "everything": {
        "process": "square",
        "period": 12.5,
        "amplitude": 2,
        "variance": [1.0, 0.5],
        "direction": [1, -2],
        "phase": -0.5,
        "swing": 0.25,
        "optimizer": "nesterov",
        "lr": 0.003,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "noise": 0.5,
        "basis": "fourier:1,2",
    },
    "radial": {**GOOD, "basis": "radial:-1,0,1", "width": 0.7},
    "no bias": {**GOOD, "bias": False, "basis": "linear"},
    "polynomial": {**GOOD, "basis": "polynomial:3"},
    "adaptive": {"process": "sinusoid", "period": 9, "optimizer": "adam", "lr": 0.1, "beta1": 0.5},
    "random": {"process": "ar2", "period": 30, "innovation": 0.001, "lr": 0.01, "momentum": 0.5},
}


@pytest.mark.parametrize("name", CODES)
def test_code_builds_the_same_setting(name, cli, monkeypatch):
    """The expression, and the options of the command line: equal in every number."""
    asked = parse_setting(CODES[name])
    wanted = build_setting(check_setting(asked))[0].describe()
    built = eval(python_setting(asked), {"rx": rx, "np": np, "learners": rx.learners})
    assert built.describe() == wanted
    seen = []
    answer = "level" if name == "adaptive" else "verdict"
    monkeypatch.setattr(f"resonax.theory.{answer}", lambda setting, **_: seen.append(setting))
    with contextlib.suppress(AttributeError, TypeError):  # nothing was judged
        import shlex

        cli("stability " + shlex.join(setting_options(asked)))
    assert seen[0].describe() == wanted


def test_no_command_makes_a_map_over_batches_that_were_rounded():
    axis = {"name": "batch", "first": 1.0, "last": 9.0, "count": 5, "log": False}
    other = {"name": "momentum", "first": 0.5, "last": 0.9, "count": 2, "log": False}
    asked = parse_setting(GOOD)
    even = map_code(asked, (other, axis), ([0.5, 0.9], [1.0, 3.0, 5.0, 7.0, 9.0]), "map")
    assert "--batch 1:9:5" in even["command"]
    rounded = {**axis, "log": True}
    assert (
        map_code(asked, (other, rounded), ([0.5, 0.9], [1.0, 2.0, 3.0]), "map")["command"] is None
    )


def test_safe_values_are_safe_and_the_setting_was_not(ask, paper):
    found = ask("safe", setting=GOOD)
    assert found["safe"] is False
    changes = {change["name"]: change for change in found["changes"]}
    own = {"momentum": 0.97, "lr": 0.01, "batch": 20.0}
    tried = []
    for name in ("momentum", "lr"):
        value = changes[name]["value"]
        assert changes[name]["setting"] == {**parse_setting(GOOD), name: value}
        # From both sides: safe there, and no more so a little nearer to the setting.
        tried += [{**own, name: at} for at in (value, value + 0.03 * (own[name] - value))]
    cells = {name: [one[name] for one in tried] for name in own}  # as the search asks for them
    assert np.sign(rx.rates(paper, cells, "mean_square")).tolist() == [-1, 1, -1, 1]
    assert "missing" in changes["batch"]  # the expected weights diverge: no batch helps


def test_a_larger_safe_step_size_is_explained(ask):
    changes = {one["name"]: one for one in ask("safe", setting=GOOD)["changes"]}
    assert changes["lr"]["value"] > GOOD["lr"]
    assert "no smaller safe one is as near" in changes["lr"]["sentence"]
    assert "larger" not in changes["momentum"]["sentence"]


def test_a_safe_setting_stays_as_it_is(paper):
    found = nearest_safe(paper.at({"momentum": 0.5}))
    assert found.is_safe
    assert found.values == {"momentum": 0.5, "lr": 0.01, "batch": 20.0}


def test_a_batch_that_is_too_small_is_raised():
    """One sample a step makes the mean square grow, and enough of them do not."""
    # A wave of no height, as the search for the other setting has compiled what it takes.
    still = rx.Sinusoid(period=22, amplitude=0.0, variance=1.0)
    setting = rx.Setting(still, rx.heavy_ball(0.1, 0.9), batch=1)
    found = nearest_safe(setting)
    assert not found.is_safe
    batch = found.values["batch"]
    cells = {"momentum": [0.9, 0.9], "lr": [0.1, 0.1], "batch": [batch - 1, batch]}
    rates = rx.rates(setting, cells, "mean_square")  # all three as in the search: one program
    assert rates[0] > 0 > rates[1]


def test_the_spectrum_shows_the_bands_in_which_the_rhythm_grows(ask, paper):
    found = ask("spectrum", setting=GOOD)
    (line,) = found["lines"]
    assert line["frequency"] == pytest.approx(1 / 22)
    assert any(band["first"] < 1 / 22 < band["last"] for band in found["bands"])
    low, high = (1 / found["bands"][0][edge] for edge in ("last", "first"))
    around = [0.98 * low, 1.02 * low, 0.98 * high, 1.02 * high]
    assert (rx.rates(paper, {"period": around}, "map") > 0).tolist() == [False, True, True, False]
    still = {name: value for name, value in GOOD.items() if name != "period"}
    nothing = ask("spectrum", setting={**still, "process": "iid"})
    assert nothing["bands"] is None
    assert nothing["missing"]


def test_runs_grow_in_order_as_theory_says_and_not_shuffled(ask, paper):
    found = ask("runs", setting={**GOOD, "momentum": 0.98}, steps=1200, runs=3)
    steps, logs = np.array(found["steps"]), np.array(found["in_order"])
    assert logs.shape == np.shape(found["shuffled"]) == (3, len(steps))
    assert steps[-1] == 1200
    late = steps >= 300
    slope = np.polyfit(steps[late], logs[:, late].mean(axis=0) * np.log(10), 1)[0]
    rate = rx.rates(paper, {"momentum": [0.98]}, "map")[0]
    assert slope == pytest.approx(rate, rel=0.15)
    assert np.max(np.array(found["shuffled"])[:, -1]) < 0.5
    run = _run(found["code"]["python"])["found"]
    assert np.array_equal(run.in_order, logs)


def test_independent_inputs_have_no_order_to_lose():
    training = rx.Training(rx.Iid(dim=2), rx.heavy_ball(0.01, 0.95), batch=5)
    followed = [_follow(training, 0, 8, 8, 4, still) for still in (False, True)]
    np.testing.assert_array_equal(*followed)  # so `trajectories` follows them once


_busy = threading.Event()


def wait_for_drop(check, *_):
    """Work in slices until nobody wants it: what a thread calls."""
    _busy.set()
    while True:
        check()
        time.sleep(0.005)


def answer(check, number):
    return number


_counts: list[int] = []


def count(check, number):
    """Return how often it was called: what a thread calls."""
    _counts.append(number)
    return len(_counts)


def test_what_depends_on_the_question_alone_is_computed_once():
    async def main():
        threads, here = Threads(lambda: None), f"{__name__}:count"

        async def asked(number: int, is_cached: bool = True) -> int:
            return int(
                await threads.compute("map", here, {"lr": number}, client="a", is_cached=is_cached)
            )

        assert [await asked(one) for one in (1, 2, 1, 2)] == [1, 2, 1, 2]
        assert await asked(1, is_cached=False) == 3
        assert await asked(1) == 1
        assert [await asked(one) for one in range(3, 66)] == list(range(4, 67))  # 64 are kept
        assert await asked(1) == 1
        assert await asked(2) == 67  # it was the oldest
        older = asyncio.ensure_future(
            threads.compute("verdict", f"{__name__}:wait_for_drop", client="a")
        )
        await asyncio.to_thread(_busy.wait)
        threads._latest["a", here] = threads._latest.pop(("a", f"{__name__}:wait_for_drop"))
        assert await asked(1) == 1
        with pytest.raises(Superseded):  # an answer that is known replaces what waits, too
            await older
        threads.close()

    _busy.clear()
    asyncio.run(main())


def test_a_newer_request_replaces_an_older_one():
    async def main():
        threads, here = Threads(lambda: None), f"{__name__}:wait_for_drop"
        first = asyncio.ensure_future(threads.compute("map", here, client="a"))
        await asyncio.to_thread(_busy.wait)
        second = asyncio.ensure_future(threads.compute("map", here, client="a"))
        with pytest.raises(Superseded):
            await first
        # Another client's waits in the same thread, and is given up with its connection.
        other = asyncio.ensure_future(threads.compute("map", here, client="b", disconnected=_soon))
        with pytest.raises(Superseded):
            await other
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert await threads.compute("map", f"{__name__}:answer", 3, client="a") == b"3"
        assert threads._latest == {}
        assert not any(threads._wanted.values())
        threads.close()

    asyncio.run(main())


async def _soon() -> None:
    await asyncio.sleep(0.05)


def test_a_map_is_dropped_between_its_slices():
    """A request that was superseded costs no more than the chunk it is at."""
    from resonax.explore.theory import make_map

    told = []

    def check(count=0):
        told.append(count)
        raise Superseded

    x = {"name": "period", "first": 10.0, "last": 60.0, "count": 40, "log": False}
    y = {"name": "momentum", "first": 0.9, "last": 0.99, "count": 40, "log": False}
    with pytest.raises(Superseded):
        make_map(check, parse_setting(GOOD), x, y, "map")
    assert len(told) == 1
    assert told[0] < 40 * 40


def test_numbers_that_change_compile_nothing(ask):
    """A slider moves numbers alone: programs are compiled for the shape of a question."""
    import jax

    ask("map", setting=GOOD, **AXES)
    ask("safe", setting=GOOD)
    ask("spectrum", setting=GOOD)
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    moved = {**GOOD, "lr": 0.02, "momentum": 0.9, "period": 30.5, "amplitude": 1.5, "batch": 7}
    ask("map", setting=moved, **AXES)
    ask("safe", setting=moved)
    ask("spectrum", setting=moved)
    jax.monitoring.clear_event_listeners()
    assert compiled == []


def test_the_schema_tells_what_the_command_line_named(tmp_path):
    assert describe("a.csv", None)["data"] == {"name": "a.csv"}
    assert describe(None, "out")["results"] == {"name": "out"}
