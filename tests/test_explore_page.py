"""The page of `resonax explore` in a real browser: each view, as a person uses it."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import Server, Visit, check_in_threads, open_tab, serving, visiting
from kept_audit import kept_audit
from resonax.dynamics import Setting
from resonax.explore import check_worker, details, theory
from resonax.explore.check_worker import CheckRequest
from resonax.reports import check as reports
from resonax.simulation import Training
from resonax.simulation.trajectories import Trajectories, trajectories
from resonax.theory import verdict
from resonax.theory.maps import map_arrays
from resonax.theory.period import Advance

PAGE = Path(__file__).parent.parent / "src" / "resonax" / "explore" / "page"
AXES = "&x=period:12:60&y=momentum:0.95:0.999"
TONGUE = f"#view=map&process=sinusoid&period=22&momentum=0.97&lr=0.01&batch=20{AXES}"
BEYOND = "main > :not([hidden])"
DESK = {"width": 1440, "height": 900}
SMALL = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def tab():
    """One tab, in which the page is loaded anew for each test."""
    with open_tab(DESK) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all tests, with results to browse; its simulations are short, its maps coarse.

    That its numbers are those of the library is tested without a browser.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(details, "trajectories", briefly)
        patch.setattr(theory, "verdict", partial(verdict, steps=512))
        patch.setattr(theory, "_PATHS", 8)
        patch.setattr(theory, "map_arrays", coarsely)
        check_in_threads(patch)
        pictures = reports._pictures  # one of four: all are drawn where reports are tested
        patch.setattr(reports, "_pictures", lambda check, names: pictures(check, names[:1]))
        with serving(results(tmp_path_factory.mktemp("results"))) as started:
            yield started


@pytest.fixture
def endless(monkeypatch):
    """Let checks begin with a verdict and go on for ever; the event tells that one has ended."""
    ended = threading.Event()

    def check(_: CheckRequest, send: Callable[[str, Any], None]) -> None:
        progress = {"stage": "reading", "fraction": 0.5, "seconds_left": None}
        try:
            send("partial", {"verdict": "marginal", "sentence": "neither"})
            while not ended.wait(0.05):
                send("progress", progress)
        finally:
            ended.set()

    monkeypatch.setattr(check_worker, "_check", check)
    yield ended
    ended.set()


@pytest.fixture
def visit(tab, server, request):
    """A visit of the map in the tongue, or of where a test wants to begin."""
    start = getattr(request, "param", TONGUE)
    with visiting(tab, server.address + start) as opened:
        yield opened


def starting(view: str):
    """Begin a test on another view, for which no map is computed."""
    return pytest.mark.parametrize("visit", [f"#view={view}"], indirect=True, ids=[view])


def briefly(training: Training, *, runs: int, steps: int, seed: int) -> Trajectories:
    """Follow runs for a few of the steps that are asked for."""
    return trajectories(training, runs=runs, steps=steps // 20, seed=seed)


def coarsely(
    setting: Setting, criterion: str, axes: dict[str, np.ndarray], advance: Advance
) -> dict[str, np.ndarray]:
    """Compute four rows and columns of a map, ends included, and repeat them.

    Periods from 12 to 60 are then whole numbers: products of updates are short.
    """
    few = {name: values[:: len(values) // 3] for name, values in axes.items()}
    found = map_arrays(setting, criterion, few, advance)
    nearest = [abs(axes[name][:, None] - few[name]).argmin(axis=1) for name in axes]
    return {name: array[np.ix_(*nearest)] for name, array in found.items()}


def results(folder: Path) -> Path:
    """Run a small sweep whose results are browsed."""
    import resonax as rx

    sweep = {
        "id": "small",
        "title": "A small sweep",
        "process": {"kind": "sinusoid"},
        "model": {"kind": "linear"},
        "optimizer": {"kind": "heavy_ball", "lr": 0.01},
        "train": {"batch": 4, "noise": 0.1},
        "run": {"runs": 3, "steps": 80, "window": 20},
        "axes": {"momentum": {"values": [0.9, 0.95]}, "period": {"values": [11, 22, 33]}},
    }
    rx.run_sweep(sweep, out=folder)
    return folder


def rows(path: Path, count: int = 600) -> Path:
    """Write hours of a day that repeats, and what comes next; one name is mark-up."""
    noise = np.random.default_rng(0).normal(size=count + 1)
    values = 2 * np.sin(2 * np.pi * np.arange(count + 1) / 24) + 0.5 * noise
    lines = [f"{k},{a:.6f},{b:.6f}" for k, (a, b) in enumerate(itertools.pairwise(values))]
    path.write_text("\n".join(["hour,<b>now</b>,later", *lines]))
    return path


def test_the_map_says_what_happens_shows_why_and_leads_out_of_the_tongue(visit: Visit):
    said = r"Diverges: for .* 20 samples per step, .* doubles every [\d,]+ steps \(measured"
    assert re.search(said, visit.verdict())
    for name in ("map", "runs", "multipliers", "spectrum"):
        visit.drawn(name)
    page = visit.page
    assert page.locator(".criteria li[data-verdict=diverges]").count() == 4
    page.wait_for_selector("[data-safe=momentum]")
    code = page.inner_text(".codes")
    assert "resonax stability sinusoid" in code
    assert "rx.verdict(" in code
    page.wait_for_function(
        "() => document.querySelector('[data-name=map] .plot').data[0].z.length === 100"
    )
    page.click("[data-safe=momentum]")
    visit.verdict("converges")
    assert float(re.findall(r"momentum=([\d.]+)", page.url)[0]) < 0.97


def test_a_slider_redraws_the_map_and_the_back_button_undoes_it(visit: Visit):
    page = visit.page
    visit.verdict()
    visit.drawn("map")
    before, start = visit.rates(), page.url
    page.focus("[data-number=amplitude]")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        "before => JSON.stringify(document.querySelector('[data-name=map] .plot').data[0].z)"
        " !== before",
        arg=page.evaluate("JSON.stringify", before),
    )
    assert "amplitude=0.49" in page.url
    page.go_back()
    assert page.url == start
    assert page.input_value("[data-typed=amplitude]") == "0.5"


def test_you_can_be_clicked_dragged_and_moved_by_keys(visit: Visit):
    page = visit.page
    assert "Diverges" in visit.verdict()
    visit.drawn("map")
    box = page.locator("[data-name=map] .surface").bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.9 * box["height"])
    visit.verdict("converges")
    numbers = dict(re.findall(r"(momentum|period)=([\d.]+)", page.url))
    assert float(numbers["momentum"]) == pytest.approx(0.95 + 0.1 * 0.049, abs=1e-3)
    page.keyboard.press("Shift+ArrowUp")
    raised = float(dict(re.findall(r"(momentum)=([\d.]+)", page.url))["momentum"])
    assert raised == pytest.approx(float(numbers["momentum"]) + 0.05 * 0.049, abs=2e-4)
    marker = page.locator("[data-name=map] .you").bounding_box()
    page.mouse.move(marker["x"] + 11, marker["y"] + 11)
    page.mouse.down()
    page.mouse.move(box["x"] + 10 / 48 * box["width"], box["y"] + 4, steps=5)
    page.mouse.up()
    visit.verdict("diverges")


def test_any_two_numbers_are_axes_and_a_wrong_number_is_refused_beside_it(visit: Visit):
    page = visit.page
    visit.drawn("map")
    page.select_option("[data-axis=x]", "lr")
    page.wait_for_function(
        "() => document.querySelector('[data-name=map] .plot')"
        ".layout.xaxis.title.text.includes('step size')"
    )
    assert "x=lr" in page.url
    visit.expected = "400 (Bad Request)"  # to each question that is asked while it stands there
    page.fill("[data-typed=lr]", "-1")
    page.keyboard.press("Enter")
    page.wait_for_selector("main .error:not(:empty)")
    page.fill("[data-typed=lr]", "0.01")
    page.keyboard.press("Enter")
    page.wait_for_selector("main .error:not(:empty)", state="detached")


STATES = """() => Object.fromEntries([
    ["verdict", "h1"], ["criteria", ".verdict.card"], ["map", "[data-name=map]"],
    ["runs", "[data-name=runs]"], ["multipliers", "[data-name=multipliers]"],
    ["spectrum", "[data-name=spectrum]"], ["safe", ".remedies"],
].map(([name, place]) =>
    [name, document.querySelector(`.map-view ${place}`).dataset.state ?? ""]))"""
HOLD = """() => {
    const real = window.fetch;
    window.fetch = (address, options) => String(address).endsWith("/code")
        ? real(address, options) : new Promise(() => {});
    window.release = () => { window.fetch = real; };
}"""


def test_nothing_old_stands_under_a_new_setting(visit: Visit):
    """All answers are held back: what is seen meanwhile is grey, but the code is already there."""
    page = visit.page
    visit.verdict()
    for name in ("map", "runs", "multipliers", "spectrum"):
        visit.drawn(name)
    page.wait_for_selector("[data-safe=momentum]")
    page.evaluate(HOLD)
    page.select_option("[data-control=optimizer]", "adam")
    assert set(page.evaluate(STATES).values()) == {"computing"}
    assert "Computing" in page.inner_text("h1 .state")
    page.wait_for_selector(".codes:has-text('rx.adam(')")
    assert "rx.heavy_ball" not in page.inner_text(".codes")
    assert page.locator(".answer:not([inert]) [data-safe]").count() == 0  # of the old setting
    page.evaluate("() => release()")
    page.select_option("[data-control=optimizer]", "sgd")  # while Adam's answers are on their way
    page.wait_for_function(f"() => Object.values(({STATES})()).every((state) => state === '')")
    assert page.locator(".criteria li[data-verdict]").count() == 4  # those of SGD, and no level
    assert "settles" not in page.inner_text(f"{BEYOND} h1").lower()


def test_an_answer_about_another_setting_is_dropped(visit: Visit):
    page = visit.page
    visit.verdict()
    page.route(
        "**/api/verdict", lambda route: route.fulfill(json={"asked": 0, "sentence": "other"})
    )
    page.fill("[data-typed=momentum]", "0.9")
    page.keyboard.press("Enter")
    page.wait_for_selector(".codes:has-text('momentum=0.9)')")
    page.wait_for_timeout(300)
    page.unroute("**/api/verdict")
    assert page.get_attribute("h1", "data-state") == "computing"
    assert "other" not in page.inner_text("h1")


@pytest.mark.slow
def test_a_map_of_adam_comes_coarsely_first_with_plain_numbers_at_its_bar(visit: Visit):
    page = visit.page
    page.select_option("[data-control=optimizer]", "adam")
    visit.verdict("level")
    page.wait_for_selector("[data-name=map]:is(:not([data-state]), [data-state=finer]) .cbaxis")
    assert "Predicted distance" in page.inner_text("[data-name=map] h2")
    words = page.locator("[data-name=map] .cbaxis text").all_text_contents()
    assert len(words) > 1
    assert all(float(word) > 0 for word in words)
    assert "adapt" in page.inner_text("[data-name=multipliers] .empty")


def test_what_cannot_be_is_said_beside_its_input_and_nothing_old_stays(visit: Visit):
    page = visit.page
    visit.verdict()
    visit.expected = "400 (Bad Request)"
    for number, text in (("momentum", "2"), ("momentum", "many"), ("lr", "-1")):
        page.fill(f"[data-typed={number}]", text)
        page.keyboard.press("Enter")
        place = f".number:has([data-typed={number}]) .error:not(:empty)"
        page.wait_for_selector(place)
        page.wait_for_function(f"() => Object.values(({STATES})()).every((one) => one === 'none')")
        assert "No answer for this setting" in page.inner_text("h1 .state")
        page.fill(f"[data-typed={number}]", "0.5" if number == "momentum" else "0.01")
        page.keyboard.press("Enter")
        page.wait_for_selector(place, state="detached")
    axis = ".axes input >> nth=0"
    page.fill(axis, "99")
    page.keyboard.press("Enter")
    assert "from a smaller" in page.inner_text(".axes .error")
    assert set(page.evaluate(STATES).values()) == {"none"}


def test_captions_and_titles_say_what_is_drawn_and_overprint_nothing(visit: Visit):
    page = visit.page
    visit.verdict()
    for name in ("map", "runs", "spectrum", "multipliers"):
        visit.drawn(name)
    caption = "[data-name=map] figcaption"
    assert "On the line" in page.inner_text(caption)
    assert "Dashed" not in page.inner_text(caption)  # these inputs are unbounded
    overlaps = """() => [...document.querySelectorAll(".map-view .main-svg")].flatMap((svg) => {
        const boxes = (names) =>
            [...svg.querySelectorAll(names)].map((each) => each.getBoundingClientRect());
        const ticks = boxes(".xtick text, .ytick text, .cbaxis text");
        const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
            && a.top < b.bottom - 1 && b.top < a.bottom - 1;
        return boxes(".xtitle, .ytitle").flatMap((a) => ticks.filter((b) => meet(a, b)));
    }).length"""
    assert page.evaluate(overlaps) == 0
    page.fill("[data-typed=momentum]", "0.2")
    page.keyboard.press("Enter")
    page.fill(".axes input >> nth=3", "0.96")
    page.keyboard.press("Enter")
    page.wait_for_function(
        "() => !document.querySelector('[data-name=map] figcaption')"
        ".textContent.includes('On the line')"
    )


@starting("data")
def test_a_text_column_is_left_out_and_others_can_be(visit: Visit, tmp_path):
    page = visit.page
    path = tmp_path / "text.csv"
    lines = [f"{'ab'[k % 2]},{k % 7},{k % 5},{k % 3}" for k in range(300)]
    path.write_text("\n".join(["word,one,two,three", *lines]))
    page.set_input_files("input[type=file]", path)
    page.wait_for_selector("[data-column=word]", state="attached")
    ticked = (
        "() => [...document.querySelectorAll('[data-column]:checked')].map(b => b.dataset.column)"
    )
    assert page.evaluate(ticked) == ["one", "two", "three"]
    assert page.is_disabled("[data-column=word]")
    page.select_option("[data-option=target]", "three")
    page.uncheck("[data-column=two]")
    assert page.evaluate(ticked) == ["one"]
    page.wait_for_selector(".codes:has-text('--features one')")
    visit.expected = "400 (Bad Request)"
    page.fill("[data-option=batch]", "none")
    page.click("#check")
    page.wait_for_selector(".choice:has([data-option=batch]) .error:not(:empty)")


@pytest.mark.parametrize("named", ["data", "results"])
def test_the_page_opens_on_what_the_command_named(tab, tmp_path, named):
    given = rows(tmp_path / "day.csv", 50) if named == "data" else results(tmp_path)
    with serving(**{named: given}) as server, visiting(tab, server.address) as visit:
        visit.page.wait_for_selector(f"#views a[data-view={named}][aria-current=page]")
        shown = "[data-column=later]" if named == "data" else "[data-experiment=small]"
        visit.page.wait_for_selector(shown, state="attached")


@starting("data")
def test_a_dropped_file_is_checked_and_a_remedy_moves_you(visit: Visit, tmp_path):
    page = visit.page
    page.wait_for_selector(".drop")
    visit.drop(rows(tmp_path / "day <i>.csv"))
    page.wait_for_selector("select[data-option=target] option[value='later']", state="attached")
    assert page.locator(".data-form b, .data-form i").count() == 0  # names stay text
    page.select_option("[data-option=target]", "later")
    page.fill("[data-option=batch]", "1")
    page.click("#check")
    assert "Diverges" in visit.verdict()
    assert "assumed" not in visit.verdict()  # a batch was given
    page.wait_for_selector(".links a")
    for name in ("data-map", "rhythms", "training", "orders"):
        visit.drawn(name)
    assert "24" in page.inner_text(f"{BEYOND} .explanation")
    assert "resonax check" in page.inner_text(f"{BEYOND} .codes")
    with page.expect_download() as saved:
        page.click(".links a >> nth=0")
    assert "<html" in Path(saved.value.path()).read_text()
    page.click("[data-remedy=momentum]")
    assert "run=" not in page.url
    assert "by the map an error halves" in page.inner_text(".here")


@starting("data")
def test_a_bad_file_is_refused_in_one_sentence(visit: Visit, tmp_path):
    page, told = visit.page, set()
    visit.expected = "400 (Bad Request)"
    bad = {"empty.csv": b"", "not.parquet": b"PAR1 or not", "words.csv": b"a,b\nx,y\n"}
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        page.set_input_files("input[type=file]", tmp_path / name)
        if name == "words.csv":  # it can be read, and nothing be learnt from it
            page.wait_for_selector("select[data-option=target] option[value='a']", state="attached")
            assert page.locator(f"{BEYOND} .error:not(:empty)").count() == 0
            page.click("#check")
        page.wait_for_selector(f"{BEYOND} .error:not(:empty)")
        text = page.inner_text(f"{BEYOND} .error:not(:empty)")
        assert text.endswith(".")
        assert "Traceback" not in text
        told.add(text)
    assert len(told) == len(bad)  # each its own


@starting("data&source=example&run=1")
def test_a_check_ends_with_its_page(endless, visit: Visit, server: Server):
    visit.verdict("marginal")
    assert not endless.is_set()
    visit.page.goto(server.address.replace("/?", "/icon.svg?"))
    assert endless.wait(60)


@starting("results")
def test_results_are_browsed_point_by_point(visit: Visit):
    page = visit.page
    page.click("[data-experiment]")
    page.wait_for_selector("figure.stored .plot .main-svg")
    assert "experiment=" in page.url
    page.select_option("figure.stored .cell select >> nth=0", index=1)
    page.wait_for_function(
        "() => !document.querySelector('.cell-text').textContent.startsWith('Choose')"
    )


@starting("results")
def test_the_tour_tells_the_story_in_five_steps(visit: Visit):
    page = visit.page
    page.click("#tour-start")
    told = []
    verdicts = ("converges", "diverges", "marginal", "diverges", "converges")
    for step in range(1, 6):
        page.wait_for_selector(f"#tour h2:has-text('{step} of 5')")
        told.append(page.inner_text("#tour h2").split(": ")[1])
        visit.verdict(verdicts[step - 1])
        assert f"tour={step}" in page.url
        assert page.locator(f"{BEYOND} .pointed").count() == 1
        page.wait_for_function(IN_SIGHT)
        page.click("#tour .primary")
    assert told == ["Swing", "Tongue", "Noise", "Real data", "Remedy"]
    assert page.is_hidden("#tour")
    page.go_back()
    page.wait_for_selector("#tour h2:has-text('5 of 5')")


IN_SIGHT = """() => {
    const { top, bottom } = document.querySelector(".pointed").getBoundingClientRect();
    return top < innerHeight && bottom > 0;
}"""

# The answer of a server whose body breaks off, as it does where a request is given up late.
BROKEN = """async () => {
    const { request } = await import("/api.js");
    const real = window.fetch;
    const body = new ReadableStream({ start: (it) => it.error(new Error("broken")) });
    window.fetch = async () => new Response(body, { status: 200 });
    try {
        await request("schema");
        return "answered";
    } catch (error) {
        return error.constructor.name;
    } finally {
        window.fetch = real;
    }
}"""


def test_an_answer_that_breaks_off_is_no_answer(tab, server):
    tab.goto(server.address.replace("/?", "/icon.svg?"))  # it takes a file of the server alone
    assert tab.evaluate(BROKEN) == "Unreachable"


def test_two_tabs_at_once_do_not_disturb_each_other(visit: Visit, server):
    with visit.page.expect_popup() as opened:
        visit.page.evaluate(
            "address => { window.open(address); }", server.address + TONGUE.replace("0.97", "0.9")
        )
    other = Visit(opened.value)
    with other.watched():
        for tab in (visit, other):
            tab.page.focus("[data-number=variance]")
        for _ in range(2):
            for tab in (visit, other):
                tab.page.keyboard.press("ArrowRight")
        assert "Diverges" in visit.verdict()
        assert "Converges" in other.verdict()
        for tab in (visit, other):  # each went its two steps
            assert tab.page.input_value("[data-typed=variance]") == "1.008"
    other.page.close()


@pytest.fixture(params=["light", "dark"])
def look(request, tab):
    """A phone in the dark, or a desk in the light with everything at twice its size."""
    tab.set_viewport_size(SMALL if request.param == "dark" else {"width": 720, "height": 450})
    tab.emulate_media(color_scheme=request.param)
    yield request.param
    tab.set_viewport_size(DESK)
    tab.emulate_media(color_scheme="no-override")


RULES_BROKEN = {"resultTypes": ["violations"]}  # of those kept axe does not list every element


def test_every_view_can_be_read_by_everyone(look, visit: Visit):
    """No violation of axe's rules, nothing wider than a phone, nothing that moves as data comes."""
    from axe_playwright_python.sync_playwright import Axe

    for view in ("map", "data", "results"):
        visit.page.click(f"#views a[data-view={view}]")
        if view == "map":
            visit.verdict()
            visit.drawn("spectrum")
        found = Axe().run(visit.page, options=RULES_BROKEN).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert visit.shift() < 0.1  # up to that Web Vitals call it good


def test_a_kept_audit_is_read_in_the_page(look, tab, tmp_path):
    """Its words are text, whatever they are, and its pictures have the colours of the page."""
    from axe_playwright_python.sync_playwright import Axe

    path = kept_audit().save(tmp_path / "audit.json")
    with serving(results=path) as server, visiting(tab, server.address) as visit:
        visit.drawn("audit-runs")
        visit.drawn("audit-batches")
        assert visit.verdict("diverges") == "The order is not random, and harmful"
        said = tab.inner_text("#view-results")
        for words in ("resonance", "40 of 64", "A buffer, <script>", "a note, <script>"):
            assert words in said
        assert "rx.load(" in tab.inner_text(".codes")
        found = Axe().run(tab, options=RULES_BROKEN).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.shift() < 0.1


def test_figures_are_saved_and_colours_are_kept(visit: Visit):
    page = visit.page
    visit.drawn("map")
    for kind, start in (("PNG", b"\x89PNG"), ("SVG", b"<svg")):
        with page.expect_download() as saved:
            page.click(f"[data-name=map] .save:has-text('{kind}')")
        assert Path(saved.value.path()).read_bytes().startswith(start)
    page.select_option("#theme", "dark")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_server_that_stops_and_comes_back_is_found_again(visit: Visit, server: Server):
    """The last of the visits: the server that comes back knows no answer any more."""
    page = visit.page
    visit.verdict()
    visit.expected = "Failed to load resource"  # each request that finds no server, or a last word
    server.stop()
    page.fill("[data-typed=momentum]", "0.9")
    page.keyboard.press("Enter")
    page.wait_for_selector("#banner:not([hidden])")
    server.start()
    page.wait_for_selector("#banner", state="hidden")
    visit.verdict("converges")


@pytest.mark.parametrize(
    "unwanted", [r"innerHTML|outerHTML|insertAdjacent|\beval\(", r"https?://(?!www\.w3\.org)"]
)
def test_no_text_becomes_mark_up_and_no_other_host_is_named(unwanted):
    found = [path.name for path in PAGE.iterdir() if re.search(unwanted, path.read_text())]
    assert found == []
