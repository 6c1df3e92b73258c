"""Where results are: a folder of this machine, or a place that fsspec reaches by its URL."""

from __future__ import annotations

import re
from pathlib import Path

from resonax.checks import ArgumentError, shorten
from resonax.results.remote import Remote

__all__ = ["Place", "as_place"]

Place = Path | Remote
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)


def as_place(where: str | Place) -> Place:
    """Return the folder or the URL that a person names; ``file://`` is a folder.

    Examples
    --------
    >>> as_place("out"), as_place("file:///data/out")
    (PosixPath('out'), PosixPath('/data/out'))
    >>> str(as_place("memory://runs/") / "results" / "mine.zarr")
    'memory://runs/results/mine.zarr'
    """
    if isinstance(where, Path | Remote):
        return where
    if not isinstance(where, str):
        raise ArgumentError(f"a path or a URL is needed, got {shorten(where)}")
    found = _URL.fullmatch(where)
    if found is None:
        return Path(where)
    kind, path = found[1].lower(), found[2]
    if kind in ("file", "local"):
        return Path(path or "/")
    if not path.strip("/"):
        raise ArgumentError(f"{shorten(where)} names no bucket: write {kind}://BUCKET/FOLDER")
    place = Remote(f"{kind}://{path.rstrip('/')}")
    place.check_kind()
    return place
