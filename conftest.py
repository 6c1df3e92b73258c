"""Examples in documents may write files: each document runs in a folder of its own."""

from __future__ import annotations

import pytest

# Scripts that draw: `make docs` and `make docs-pictures` run them.
collect_ignore_glob = [
    "docs/conf.py",
    "docs/_build/*",
    "docs/auto_gallery/*",
    "docs/gallery/*",
    "docs/pictures/*",
    "docs/extensions/scraper.py",
    "docs/extensions/mathml.py",
]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
