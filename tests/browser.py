"""The browser for the tests of the page: found, or installed as `make test` does first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["MISSING", "find_browser", "is_required"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLAYWRIGHT = [sys.executable, "-m", "playwright", "install", "chromium"]
DEBIAN = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
MISSING = (
    "No browser was found: the tests of the page are left out. Install chromium or Chrome, or run "
    "`.venv/bin/playwright install --with-deps chromium`, and run the tests again."
)


def find_browser() -> str | None:
    """Return the first browser that starts: some distributions have a script in its place."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        paths = [*map(shutil.which, NAMES), playwright.chromium.executable_path]
    for path in filter(None, paths):
        if (
            Path(path).exists()
            and subprocess.run([path, "--version"], capture_output=True).returncode == 0
        ):
            return path
    return None


def is_required() -> bool:
    """Return whether the tests fail without a browser: in CI nobody reads what was left out."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def install() -> str | None:
    """Install a browser where there is none: Playwright's, or as root the one of Debian."""
    commands = [PLAYWRIGHT]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        commands += [["apt-get", "update", "-qq"], DEBIAN]
    for command in commands:
        if found := find_browser():
            return found
        print("Installing a browser for the tests of the page:", " ".join(command), flush=True)
        subprocess.run(command)
    return find_browser()


if __name__ == "__main__":
    if install() is None:
        print(MISSING)
        sys.exit(is_required())
