"""What all tests and examples share: one compilation cache, and a folder of its own for each."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("docs/extensions", "tests")]

from quick_compilation import quick_compilation  # noqa: E402

os.environ.setdefault("XLA_FLAGS", quick_compilation())  # the slow tests compile as users do
# Copies share the cores: threads of BLAS or of torch would fight for them. Both read this when
# they are loaded, which another conftest.py does.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

pytest_plugins = ["copies", "forks"]

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
    """Give this run and the commands that it starts one cache of compiled programs.

    It begins empty, so that nothing depends on what an earlier run compiled. In the background of a
    shell Ctrl-C is ignored, which all commands would inherit that the tests interrupt.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until all is imported
    home = Path(tempfile.mkdtemp(prefix="resonax-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ |= {
        "XDG_CACHE_HOME": str(home),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "JAX_COMPILATION_CACHE_DIR": str(home / "resonax" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",  # others are made anew as fast
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",  # a name for each operation, and no stack
    }


def pytest_collection_finish() -> None:
    """Leave what the collection made out of all later searches for garbage, here and in copies."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # tracing makes many objects, and few of them in cycles
    if torch := sys.modules.get("torch"):  # oneDNN takes longer to begin than to multiply so little
        torch.backends.mkldnn.set_flags(False)


@pytest.fixture(autouse=True)
def _own_folder(request, monkeypatch):
    """Begin each test in a folder of its own: that of pytest, which takes a millisecond, if asked.

    Others are removed with the cache.
    """
    if "tmp_path" in request.fixturenames:
        folder = request.getfixturevalue("tmp_path")
    else:
        folder = tempfile.mkdtemp(dir=os.environ["XDG_CACHE_HOME"])
    monkeypatch.chdir(folder)


@pytest.fixture(autouse=True)
def _own_log():
    """Let each test hear all: a page shows how to be told less."""
    yield
    log = logging.getLogger("resonax")
    if log.level != logging.NOTSET:  # to set it takes a look at every logger
        log.setLevel(logging.NOTSET)
