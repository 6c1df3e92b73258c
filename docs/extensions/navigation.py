"""The list of all pages beside source code: made once for all files of the same depth.

It is one of the dearest parts of a page, and differs only in how far up its links lead.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from sphinx.application import Sphinx

_TREES: dict[int, Any] = {}


def _share(_: Sphinx, name: str, template: str, context: dict[str, Any], tree: Any) -> None:
    del template, tree
    if name.startswith("_modules/"):
        context["toctree"] = _TREES.setdefault(name.count("/"), cache(context["toctree"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the step, before that of the theme, which asks for the list."""
    app.connect("html-page-context", _share, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
