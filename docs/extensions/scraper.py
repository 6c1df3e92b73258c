"""Figures for the gallery: what resonax draws is a value, not a window that pyplot knows of."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

from resonax.figures.style import STYLE


def scrape_figures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save every figure that a block made, and return the text that shows them."""
    del block
    seen = block_vars.setdefault("_drawn", set())
    paths = []
    for found in block_vars["example_globals"].values():
        if isinstance(found, Figure) and id(found) not in seen:
            seen.add(id(found))
            path = next(block_vars["image_path_iterator"])
            found.set_dpi(110)
            with matplotlib.rc_context(STYLE):  # `savefig` would draw all twice
                FigureCanvasAgg(found).print_png(path)
            paths.append(path)
    return figure_rst(paths, gallery_conf["src_dir"])
