"""Pictures of the page of `resonax explore`: on a desk and on a phone, light and dark."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
TOKEN = "a-token-for-the-pictures"
TONGUE = "#view=map&period=22&momentum=0.97&lr=0.01&batch=20&x=period:12:60&y=momentum:0.95:0.999"
EXAMPLE = "#view=data&source=example&run=1"
DESK = {"viewport": {"width": 1360, "height": 1290}, "device_scale_factor": 1}
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2}
OF_NOW = "() => !document.querySelector('.map-view [data-state]')"
LARGEST = 240_000  # bytes
FINE = "() => document.querySelector('[data-name=map] .plot')?.data?.[0].x.length > 99"


def save(page: Page, name: str) -> None:
    """Write what is seen; with 256 colours where it would be too large for a page of text."""
    path = HERE / f"{name}.png"
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        image.quantize(256).save(path, optimize=True)


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "resonax", "explore", "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"RESONAX_EXPLORE_TOKEN": TOKEN},
    )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            for size, look in (("desktop", DESK), ("phone", PHONE)):
                page = browser.new_context(color_scheme=scheme, **look).new_page()
                page.goto(address + TONGUE)
                page.wait_for_function(FINE, timeout=240_000)
                page.wait_for_function(OF_NOW, timeout=240_000)
                page.wait_for_timeout(1500)
                save(page, f"explore-{size}-{scheme}")
        page = browser.new_context(color_scheme="light", **DESK).new_page()
        page.goto(address + EXAMPLE)
        page.wait_for_selector(".links a", timeout=400_000)
        page.wait_for_timeout(1500)
        save(page, "explore-data")
        browser.close()
    server.terminate()


if __name__ == "__main__":
    main()
