"""The browser of the page's tests: found, installed, or asked for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import browser
from browser import find_browser, install, is_required


@pytest.fixture(autouse=True)
def _no_browser(tmp_path, monkeypatch):
    """Hide the browsers of this machine."""
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "own"))
    monkeypatch.setattr(browser, "NAMES", (str(tmp_path / "first"), str(tmp_path / "second")))


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_first_browser_that_starts_is_found(tmp_path):
    assert find_browser() is None
    script(tmp_path / "first", "exit 1")
    assert find_browser() is None
    second = script(tmp_path / "second", "exit 0")
    assert find_browser() == second


def test_ways_to_install_are_tried_in_turn_until_one_works(tmp_path, monkeypatch):
    ran = []

    def run(command, **_):
        ran.append(command[0])
        if command == browser.DEBIAN:
            script(tmp_path / "first", "exit 0")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr("browser.subprocess.run", run)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert install() == str(tmp_path / "first")
    assert ran == [browser.PLAYWRIGHT[0], "apt-get", "apt-get", str(tmp_path / "first")]


@pytest.mark.parametrize(("ci", "required"), [("", False), ("false", False), ("true", True)])
def test_a_browser_is_required_in_ci_alone(monkeypatch, ci, required):
    monkeypatch.setenv("CI", ci)
    assert is_required() == required
