"""The browser for the tests of the page: found, installed where that is allowed, or told of.

`make test` runs this file: with `--install` first, and without in the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["MISSING", "find_browser", "installers", "is_required", "possible_browsers"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "No browser was found: the tests of the page were left out. Install chromium or Chrome, or run "
    "`.venv/bin/playwright install --with-deps chromium`, and run the tests again."
)


def possible_browsers(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield where a browser may be: on PATH, then where Playwright keeps its own."""
    for name in NAMES:
        if found := shutil.which(name, path=environment.get("PATH", "")):
            yield found
    home = Path(environment.get("HOME", "~")).expanduser()
    caches = (home / ".cache/ms-playwright", home / "Library/Caches/ms-playwright")
    if place := environment.get("PLAYWRIGHT_BROWSERS_PATH"):
        caches = (Path(place),)
    for cache in caches:
        for name in ("chrome", "Chromium", "Google Chrome for Testing"):
            for found in sorted(cache.glob(f"chromium-*/**/{name}"), reverse=True):
                if found.is_file():
                    yield str(found)


def find_browser() -> str | None:
    """Return the first browser that starts: some distributions have a script in its place."""
    for path in possible_browsers(os.environ):
        if subprocess.run([path, "--version"], capture_output=True).returncode == 0:
            return path
    return None


def installers(is_root: bool) -> list[list[list[str]]]:
    """Return the ways to install one, each the commands of it: the packages of Debian need root."""
    ways = [[[sys.executable, "-m", "playwright", "install", "chromium"]]]
    if is_root and shutil.which("apt-get"):
        package = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        ways.append([["apt-get", "update", "-qq"], package])
    return ways


def is_required() -> bool:
    """Return whether the tests fail without a browser: under CI nobody reads what was left out."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def install() -> None:
    """Install a browser, if there is none, in one of the ways; that none did is said in the end."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    for way in installers(is_root):
        if find_browser():
            return
        print("Installing a browser for the tests of the page:", " ".join(way[-1]), flush=True)
        for command in way:
            if subprocess.run(command, capture_output=True).returncode:
                break


if __name__ == "__main__":
    if "--install" in sys.argv:
        install()
    elif find_browser() is None:
        print(MISSING)
        sys.exit(is_required())
