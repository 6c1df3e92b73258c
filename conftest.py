"""What all tests and examples share: one cache of compiled programs, and a folder for each test."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("docs/extensions", "tests")]

# Scripts that draw: `make docs` and `make docs-pictures` run them.
collect_ignore_glob = [
    "docs/conf.py",
    "docs/_build/*",
    "docs/auto_gallery/*",
    "docs/gallery/*",
    "docs/pictures/*",
    "docs/extensions/scraper.py",
    "docs/extensions/mathml.py",
    "docs/extensions/navigation.py",
]


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what workers and commands inherit from this process.

    All share one cache of compiled programs. It begins empty, so that nothing depends on an earlier
    run. A shell ignores Ctrl-C for what it runs in the background; some tests interrupt commands.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist
        return
    cache = Path(tempfile.mkdtemp(prefix="resonax-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))
    os.environ |= {
        "XDG_CACHE_HOME": str(cache),
        "MPLCONFIGDIR": str(cache / "matplotlib"),
        "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_log_level() -> Iterator[None]:
    """Undo the log level that a page sets."""
    yield
    logging.getLogger("resonax").setLevel(logging.NOTSET)
