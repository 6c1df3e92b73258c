"""Equations as MathML: drawn by the browser itself, without scripts and without a network."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    latex = node.astext()
    if ("\\\\" in latex and "\\begin" not in latex) or ("&" in latex and "\\begin" not in latex):
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    label = node.get("label")
    anchor = f' id="{escape(f"equation-{label}")}"' if label else ""
    writer.body.append(f"<div class='math'{anchor}>{convert(latex, display='block')}</div>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
