"""What all tests and examples share: one compilation cache, and a folder of its own for each."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

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


def _quick_compilation() -> str:
    """Return flags of XLA by which code is compiled in half the time.

    Most of the time of a test goes into the compiler. That leaves machine code as it comes here,
    which gives the same numbers to rounding; the slow tests optimise, as users do.
    """
    wanted = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": "false"}
    return " ".join(f"--{flag}={value}" for flag, value in wanted.items() if _has_flag(flag))


def _has_flag(name: str) -> bool:
    """Whether this version of XLA has a flag: one that it does not know ends the process."""
    found = find_spec("jaxlib")
    library = Path(found.origin).with_name("libjax_common.so") if found and found.origin else Path()
    if not library.is_file():
        return False
    with library.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as text:
        return text.find(name.encode()) >= 0


def pytest_configure(config: pytest.Config) -> None:
    """Give this run, its workers and the commands that they start one compilation cache.

    It begins empty, so that nothing depends on what an earlier run compiled.
    """
    if hasattr(config, "workerinput"):  # a worker has the environment of its controller
        return
    home = Path(tempfile.mkdtemp(prefix="resonax-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))
    os.environ.setdefault("XLA_FLAGS", _quick_compilation())
    # Two workers have a core each: threads of BLAS or of torch would fight for it.
    for library in ("OPENBLAS", "OMP", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    os.environ |= {
        "XDG_CACHE_HOME": str(home),
        "MPLCONFIGDIR": str(home / "matplotlib"),
        "JAX_COMPILATION_CACHE_DIR": str(home / "resonax" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
