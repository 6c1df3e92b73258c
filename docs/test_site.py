"""The site is built without a warning, and each of its examples runs.

By a fork of the process that collected the tests: a third of the time of `make docs` is to load
what the pages document.
"""

from __future__ import annotations

from pathlib import Path

from forks import write_errors

HERE = Path(__file__).parent


def build(target: str, errors: str) -> int:
    """Build the site as `make docs` does, and return the status of sphinx."""
    write_errors(errors)
    from sphinx.cmd.build import main

    return main(["--quiet", "--fail-on-warning", "--builder", "html", str(HERE), target])


def test_the_site_is_built_without_a_warning(fork, tmp_path):
    site, errors = tmp_path / "site", tmp_path / "errors"
    assert fork(build, str(site), str(errors))() == 0, errors.read_text()
    for page in ("index", "api", "auto_gallery/index"):
        assert (site / f"{page}.html").is_file()
