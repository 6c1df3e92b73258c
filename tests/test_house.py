"""Pages that name what is in the code: the ways through it, and the version."""

from __future__ import annotations

import importlib
import re
import tomllib
from pathlib import Path

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
