"""The command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

__all__ = ["run_command", "run_python"]


def run_command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `resonax` with these words, as a shell does: status, output and errors."""
    return _run(["-m", "resonax", *words], environment)


def run_python(code: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script; the modules of the tests can be imported there."""
    return _run(["-c", code, *words], environment)


def _run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    settings: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300}
    path = os.pathsep.join(["", *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, *words], env=environment, check=False, **settings)
