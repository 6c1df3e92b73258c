"""Rules of the house: sizes of files and functions, no code in packages, pages that are true."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
LONGEST_FUNCTION = 60  # lines; a longer function needs a docstring


def test_long_functions_say_what_they_do():
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= LONGEST_FUNCTION
        and not ast.get_docstring(node)
    ]
    assert found == []


def is_declaration(node: ast.stmt) -> bool:
    """Whether a statement only imports, or says what is public, or tells what is not installed."""
    if isinstance(node, ast.Assign):
        names = [leaf.id for part in node.targets for leaf in ast.walk(part) if hasattr(leaf, "id")]
        return all(name.startswith("__") for name in names)
    if isinstance(node, ast.Try):
        return all(is_declaration(part) for part in node.body)
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("import a", True), ("__all__ = ['b']", True), ("def f(): ...", False), ("x = 1", False)],
)
def test_declarations_are_told_from_code(code, expected):
    assert is_declaration(ast.parse(code).body[0]) == expected


def test_packages_hold_no_code():
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        if path.name == "__init__.py"
        for node in ast.parse(path.read_text()).body
        if not is_declaration(node)
    ]
    assert found == []


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
