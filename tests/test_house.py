"""Pages that name what is in the code, the version, and the first words of make."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_every_name_of_the_three_ways_exists():
    names = re.findall(r"`(resonax(?:\.\w+)+)`", (ROOT / "docs" / "ways.md").read_text())
    assert len(names) > 40
    for name in names:
        parts = name.split(".")
        for count in range(len(parts), 0, -1):  # the longest part that is a module
            try:
                thing = importlib.import_module(".".join(parts[:count]))
            except ModuleNotFoundError:
                continue
            break
        for part in parts[count:]:
            thing = getattr(thing, part)
        assert thing.__doc__, name


def test_the_version_is_that_of_the_package_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert cited[1] == project["version"]


@pytest.mark.parametrize("target", ["reproduce", "lint"])
def test_on_a_fresh_machine_the_first_words_of_make_are_a_sentence(tmp_path, target):
    """Python and all that it installs stand in as scripts; pip warns unless it is to be quiet."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "constraints.txt").touch()
    script = tmp_path / "python"
    script.write_text(
        "#!/bin/sh\ncase $1 in -m) mkdir -p .venv/bin; cd .venv/bin\n"
        "for name in pip uv python resonax ruff codespell pyrefly lint-imports; do\n"
        "cp ../../python $name; done;;\n"
        "install) [ $2 = -qq ] || echo WARNING: no such place;; esac\n"
    )
    script.chmod(0o755)
    made = subprocess.run(
        ["make", target, f"PYTHON={script}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={name: given for name, given in os.environ.items() if not name.startswith("MAKE")},
    )
    said = made.stdout.splitlines()
    assert said[0].startswith("Making .venv")
    assert said[1].startswith("Installing resonax")
    assert not any("pip" in line or "WARNING" in line for line in said)
