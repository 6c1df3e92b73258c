"""Guides as notebooks: the code of a page without its prompts, with the output that it shows.

The pages themselves are executed by the test run, which compares every output. A notebook is made
from the same text, so that it cannot differ. The site has a link to the notebook of each page;
``python docs/extensions/notebooks.py [FOLDER]`` makes them without the site.

Hosted notebooks are opened from the branch that the site is published on. Their badge is shown once
``notebooks_home`` is set, the home of the repository, as ``https://github.com/owner/name``: by
``repository`` in the table ``project.urls`` of pyproject.toml, or in conf.py.
"""

from __future__ import annotations

import ast
import doctest
import re
import sys
import tomllib
from base64 import b64encode
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sphinx.application import Sphinx

DOCS = Path(__file__).parent.parent
HOSTED_BRANCH = "gh-pages"  # holds the site, and so the notebooks
# Modules that resonax itself imports for a page.
USED = {"explore-api": "starlette", "large-sweeps": "fsspec", "sweep": "numba"}
_FENCE = re.compile(r"```python\n(.*?)```\n?", re.S)
_FIGURE = re.compile(r"```\{figure\} (\S+)\n:alt: (.*)\n(?::.*\n)*\n((?:.+\n)*)```")
_IMAGE = re.compile(r"!\[([^]]*)\]\(([\w./-]+\.png)\)")
_LINK = re.compile(r"(?<!!)\[([^]]*)\]\(([\w-]+)\.md(#[\w-]+)?\)")


@cache
def _project() -> dict[str, Any]:
    return tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]


def repository_home() -> str:
    """Return the home of the repository; empty while it has none."""
    return _project().get("urls", {}).get("repository", "")


@cache
def guides(folder: Path = DOCS) -> tuple[str, ...]:
    """Return the names of all pages with executed examples."""
    pages = sorted(folder.glob("*.md"))
    return tuple(page.stem for page in pages if ">>> " in _code(page.read_text("utf-8")))


def _code(page: str) -> str:
    return "".join(_FENCE.findall(page))


@cache
def _extras() -> dict[str, str]:
    """Return the extra of each distribution that one adds; that of resonax's own needs is empty."""
    table = _project()["optional-dependencies"]
    extras = {name: lines for name, lines in table.items() if name not in ("all", "docs", "test")}
    return {
        canonicalize_name(Requirement(line).name): extra
        for extra, lines in {**extras, "": _project()["dependencies"]}.items()
        for line in lines
    }


def needed(name: str, page: str) -> tuple[list[str], list[str]]:
    """Return the modules that a page needs beside Python's own, and what to install.

    Examples
    --------
    >>> needed("page", "```python\\n>>> import json, torch\\n>>> import resonax as rx\\n```")
    (['resonax', 'torch'], ['resonax[torch]'])
    """
    source = "".join(one.source for one in doctest.DocTestParser().get_examples(_code(page)))
    found = {"resonax", USED.get(name, "resonax")}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    modules = sorted(found - set(sys.stdlib_module_names))
    homes = packages_distributions()
    names = [canonicalize_name(homes.get(one, [one])[0]) for one in modules if one != "resonax"]
    extras = {_extras()[one] for one in names if one in _extras()}
    wanted = ",".join(sorted(extras - {""}))
    others = sorted(one for one in names if one not in _extras())
    return modules, [f"resonax[{wanted}]" if wanted else "resonax", *others]


def _install_cell(name: str, page: str, home: str) -> nbformat.NotebookNode:
    modules, wanted = needed(name, page)
    if home:
        wanted = [f"{wanted[0]} @ git+{home}", *wanted[1:]]
    names = " ".join(f'"{one}"' for one in wanted)
    source = (
        "# Installs what this page needs, unless it is there.\n"
        "from importlib.util import find_spec\n\n"
        f"if not all(map(find_spec, {modules})):\n    %pip install --quiet {names}"
    )
    return new_code_cell(source)


def _text_cell(text: str, home: str) -> nbformat.NotebookNode:
    """Return a cell of text that stands alone: pictures are attached, links lead to notebooks."""
    attached = {}

    def attach(found: re.Match[str]) -> str:
        path = DOCS / found[2]
        attached[path.name] = {"image/png": b64encode(path.read_bytes()).decode()}
        return f"![{found[1]}](attachment:{path.name})"

    def lead(found: re.Match[str]) -> str:
        if found[2] in guides():
            return f"[{found[1]}]({found[2]}.ipynb)"
        place = f"{home}/blob/HEAD/docs/{found[2]}.md{found[3] or ''}"
        return f"[{found[1]}]({place})" if home else found[1]

    text = _FIGURE.sub(lambda found: f"![{found[2]}]({found[1]})\n\n{found[3]}", text)
    text = _LINK.sub(lead, _IMAGE.sub(attach, text))
    return new_markdown_cell(text.strip(), **({"attachments": attached} if attached else {}))


def _code_cells(block: str) -> list[nbformat.NotebookNode]:
    """Return a block as cells, each of which ends where the page shows output."""
    cells, source = [], ""
    for example in doctest.DocTestParser().get_examples(block):
        source += example.source
        if example.want:
            made = new_code_cell(source.rstrip())
            made.outputs = [new_output("stream", name="stdout", text=example.want)]
            if example.exc_msg is not None:  # the page shows an error
                made.metadata["tags"] = ["raises-exception"]
            cells.append(made)
            source = ""
    return [*cells, new_code_cell(source.rstrip())] if source else cells


def notebook_of(page: str, name: str = "", home: str = "") -> nbformat.NotebookNode:
    """Return a page as a notebook; blocks of Python become cells, all else is text.

    The first cell installs what the page needs.

    Examples
    --------
    >>> made = notebook_of("# Add\\n```python\\n>>> one = 1\\n>>> one + 1\\n2\\n\\n```\\n")
    >>> [cell.cell_type for cell in made.cells]
    ['code', 'markdown', 'code']
    >>> print(made.cells[2].source)
    one = 1
    one + 1
    """
    cells = [_install_cell(name, page, home)]
    for place, part in enumerate(_FENCE.split(page)):
        if place % 2:
            cells += _code_cells(part)
        elif part.strip():
            cells.append(_text_cell(part, home))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    made = new_notebook(cells=cells)
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    return made


def write_notebooks(folder: Path, home: str = "", docs: Path = DOCS) -> list[Path]:
    """Write the notebooks of all guides into a folder; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in guides(docs):
        made = notebook_of((docs / f"{name}.md").read_text("utf-8"), name, home)
        nbformat.write(made, path := folder / f"{name}.ipynb")
        paths.append(path)
    return paths


def _link(app: Sphinx, name: str, source: list[str]) -> None:
    """Put a link to the notebook, and its badge, under the title of a guide."""
    if name not in guides(Path(app.srcdir)):
        return
    title, _, rest = source[0].partition("\n")
    # A file that is written beside the page at the end.
    link = (
        f"*This page is executed by the tests.* <a href='{name}.ipynb' download>As a notebook</a>"
    )
    if home := app.config.notebooks_home:
        place = f"{urlsplit(home).path.strip('/')}/blob/{HOSTED_BRANCH}/{name}.ipynb"
        badge = f"Open in Colab <https://colab.research.google.com/github/{place}>"
        link += f" {{bdg-link-primary}}`{badge}`"
    source[0] = f"{title}\n\n{link}\n{rest}"


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        write_notebooks(Path(app.outdir), app.config.notebooks_home, Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the configuration value and both steps."""
    app.add_config_value("notebooks_home", repository_home(), "env", str)
    app.connect("source-read", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "_build" / "notebooks"
    print(f"{given}: {len(write_notebooks(given, repository_home()))} notebooks")
