"""Times of the page of `resonax explore`, measured in a real browser.

Run: python benchmarks/explore_page.py. It starts the command twice, the first time to fill the
caches, and prints the times that a person waits, each the median of five.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

TIMES = 5
TOKEN = "a-token-for-the-benchmark"
# Each returns the milliseconds from what a person does to what is then drawn.
CHANGE = """async ([name, share, size]) => {
    const figure = document.querySelector("[data-name=map]");
    const slider = document.querySelector(`[data-number=${name}]`);
    const start = performance.now();
    slider.value = String(share);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    await new Promise(done => figure.addEventListener("drawn", function seen() {
        if (figure.querySelector(".plot").data[0].x.length < size) return;
        figure.removeEventListener("drawn", seen);
        requestAnimationFrame(done);
    }));
    return performance.now() - start;
}"""
CLICK = """async share => {
    const [surface, head] = [".surface", "h1"].map(each => document.querySelector(each));
    const box = surface.getBoundingClientRect();
    const place = {bubbles: true, button: 0, pointerId: 1, pointerType: "mouse",
        clientX: box.left + share * box.width, clientY: box.top + 0.4 * box.height};
    const start = performance.now();
    surface.setPointerCapture = () => {};
    const heard = new Promise(done => new MutationObserver((_, observer) => {
        observer.disconnect();
        requestAnimationFrame(done);
    }).observe(head, {subtree: true, childList: true, characterData: true, attributes: true}));
    surface.dispatchEvent(new PointerEvent("pointerdown", place));
    surface.dispatchEvent(new PointerEvent("pointerup", place));
    await heard;
    return performance.now() - start;
}"""
FINE = "() => document.querySelector('[data-name=map] .plot')?.data?.[0].x.length > 99"
PAINT = """() => performance.getEntriesByName("first-contentful-paint")[0].startTime"""


def started() -> tuple[subprocess.Popen[str], str, float]:
    """Return the command, the address of its page, and the seconds until it answers."""
    begin = time.perf_counter()
    server = subprocess.Popen(
        [sys.executable, "-m", "resonax", "explore", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"RESONAX_EXPLORE_TOKEN": TOKEN},
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    while True:
        try:
            urllib.request.urlopen(address).read()
            return server, address, time.perf_counter() - begin
        except urllib.error.URLError:
            time.sleep(0.01)


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait()


def measure(name: str, once: Callable[[int], float]) -> None:
    found = [once(turn) for turn in range(TIMES)]
    print(f"{name:<44}{statistics.median(found):8.0f} ms   least {min(found):6.0f}", flush=True)


def visit(page: Any, address: str) -> None:
    """Time what a person does on the page."""

    def first_paint(_: int) -> float:
        page.goto("about:blank")
        page.goto(address)
        page.wait_for_selector("[data-name=map] .plot .main-svg", state="attached")
        page.wait_for_timeout(2500)
        return page.evaluate(PAINT)

    def moved(size: int, offset: int) -> Callable[[int], float]:
        def once(turn: int) -> float:
            found = page.evaluate(CHANGE, ["amplitude", offset + 37 * turn, size])
            page.wait_for_timeout(2500)
            return found

        return once

    def clicked(turn: int) -> float:
        found = page.evaluate(CLICK, 0.15 + 0.17 * turn)
        page.wait_for_timeout(2500)
        return found

    measure("first paint of the page", first_paint)
    measure("coarse map after a slider moved", moved(1, 150))
    measure("fine map, 100 x 100, after a slider moved", moved(100, 400))
    measure("verdict after a click on the map", clicked)


def main() -> None:
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("There is no chromium on PATH: install Debian's package chromium.")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        server, address, first = started()
        page = opened.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address)
        page.wait_for_function(FINE)
        page.wait_for_timeout(8000)  # the other figures
        stop(server)
        seconds = []
        for _ in range(3):
            server, address, again = started()
            seconds.append(again)
            if len(seconds) < 3:
                stop(server)
        print(f"{'server up after the command, first start':<44}{1000 * first:8.0f} ms")
        print(
            f"{'server up after the command':<44}{1000 * statistics.median(seconds):8.0f} ms   "
            f"least {1000 * min(seconds):6.0f}"
        )
        visit(page, address)
        stop(server)
        opened.close()


if __name__ == "__main__":
    main()
