"""The browser of the page's tests: found where it may be, asked for where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import browser
from browser import MISSING, find_browser, installers, is_required, possible_browsers


def script(path: Path, text: str = "exit 0") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("name", browser.NAMES)
def test_a_browser_on_the_path_is_found_before_that_of_playwright(tmp_path, name):
    found = script(tmp_path / "bin" / name)
    own = script(tmp_path / ".cache/ms-playwright/chromium-1187/chrome-linux64/chrome")
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    assert list(possible_browsers(environment)) == [found, own]
    assert list(possible_browsers({"PATH": "", "HOME": str(tmp_path)})) == [own]
    elsewhere = {"PATH": "", "HOME": "/", "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / ".cache")}
    assert list(possible_browsers(elsewhere)) == []


def test_what_does_not_start_is_no_browser(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin")
    monkeypatch.setattr(browser, "NAMES", ("first", "second"))
    script(tmp_path / "first", "exit 1")
    assert find_browser() is None
    second = script(tmp_path / "second")
    assert find_browser() == second


def test_packages_are_installed_by_root_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert len(installers(is_root=True)) == 1  # no apt-get
    script(tmp_path / "apt-get")
    assert [way[-1][-1] for way in installers(is_root=True)] == ["chromium"] * 2
    (own,) = installers(is_root=False)
    assert own[0][1:] == ["-m", "playwright", "install", "chromium"]


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("false", 0), ("true", 1)])
def test_without_a_browser_the_last_line_says_how_to_get_one(tmp_path, monkeypatch, ci, status):
    monkeypatch.setenv("CI", ci)
    assert is_required() == bool(status)
    environment = {"PATH": "", "HOME": str(tmp_path), "CI": ci}
    words = [sys.executable, browser.__file__]
    found = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (found.returncode, found.stdout, found.stderr) == (status, f"{MISSING}\n", "")
