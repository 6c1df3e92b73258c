"""Tutorials as notebooks: the code of a page without its prompts, with the output that it shows.

The pages themselves are executed by the test run, which compares every output. A notebook is made
from the same text, so that it cannot differ.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from sphinx.application import Sphinx

TUTORIALS = (
    "judge-a-stream",
    "check-your-data",
    "guard-a-run",
    "reproduce",
    "sweep",
)
_FENCE = re.compile(r"```python\n(.*?)```\n?", re.S)


def notebook_of(page: str) -> nbformat.NotebookNode:
    """Return a page as a notebook; blocks of Python become cells, all else is text.

    Examples
    --------
    >>> made = notebook_of("Add:\\n```python\\n>>> one = 1\\n>>> one + 1\\n2\\n\\n```\\n")
    >>> [cell.cell_type for cell in made.cells]
    ['markdown', 'code']
    >>> print(made.cells[1].source)
    one = 1
    one + 1
    """
    cells = []
    for place, part in enumerate(_FENCE.split(page)):
        if place % 2 == 0:
            if part.strip():
                cells.append(new_markdown_cell(part.strip()))
            continue
        examples = doctest.DocTestParser().get_examples(part)
        shown = "".join(example.want for example in examples)
        outputs = [new_output("stream", name="stdout", text=shown)] if shown else []
        source = "".join(example.source for example in examples).rstrip()
        cells.append(new_code_cell(source, outputs=outputs))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    made = new_notebook(cells=cells)
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def _link(_: Sphinx, name: str, source: list[str]) -> None:
    """Put a link to the notebook under the title of a tutorial."""
    if name not in TUTORIALS:
        return
    title, _, rest = source[0].partition("\n")
    # A file that Sphinx copies beside the page when the site is written.
    link = (
        f"*This page is executed by the tests.* <a href='{name}.ipynb' download>As a notebook</a>"
    )
    source[0] = f"{title}\n\n{link}\n{rest}"


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    for name in TUTORIALS:
        page = (Path(app.srcdir) / f"{name}.md").read_text("utf-8")
        nbformat.write(notebook_of(page), Path(app.outdir) / f"{name}.ipynb")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both steps."""
    app.connect("source-read", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
