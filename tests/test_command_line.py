"""The face of the command line: help, completion, names shown as text, slips told at once."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from types import ModuleType

import pytest
from rich.console import Console

from commands import run_command
from resonax.cli.app import app
from resonax.cli.show import show_line

# Each with a word of its answer; none of them needs jax.
SLIPS = {
    "stability": "name a process",
    "stability sinusoidd --lr 0.1": "did you mean 'sinusoid'",
    "stability sinusoid --period 22": "--lr is missing",
    "stability sinusoid --lr 0.1 --momentum 0.9": "--period is missing",
    "stability iid --lr 0.1 --momentum 0.9 --period 3": "--period is not a parameter of iid",
    "stability sinusoid --period 22 --lr -1 --momentum 0.9": "--lr must be above 0",
    "stability sinusoid --period 22 --lr 0.1": "--momentum is missing: heavy_ball needs it",
    "stability sinusoid --period 22 --lr 0.1 --momentum 1.2": "--momentum must be",
    "stability sinusoid --period 0.5 --lr 0.1 --momentum 0.9": "--period must be",
    "stability sinusoid --period 9 --lr 0.1 --momentum 0.9 --optimizer optax.lion": "not cover",
    "stability sinusoid --period 9 --lr 0.1 --momentum 0.9 --basis spline": "unknown basis",
    "stability sinusoid --period 9 --lr 0.1 --momentum 0.9 --batch 0": "--batch must be",
    "stability sinusoid --period 9 --lr 0.1 --momentum 0.9 --paths 1": "--paths must be",
    "stability recorded --lr 0.1 --momentum 0.9": "--data is missing",
    "stability recorded --data none.csv --lr 0.1 --momentum 0.9": "there is no file none.csv",
    "map sinusoid --lr 0.01 --momentum 0.9:0.99:5 --period 9": "a map needs --out",
    "map sinusoid --lr 1 --momentum 0.9:1.2:5 --period 9:20:3 --plot m.png": "--momentum must be",
    "map sinusoid --lr 1 --momentum 0:0.9:5 --period 9:20:3 --plot m.png --criterion x": "unknown",
    "map sinusoid --lr 0.01 --momentum 0:0.9:5 --period 9:20:3 --plot no/m.png": "does not exist",
    "check none.csv --lr 0.01 --momentum 0.9": "there is no file none.csv",
    "check none.csv --lr 0.01 --momentum 2": "momentum must be at least 0 and below 1",
}


def test_slips_are_told_before_jax_is_loaded():
    code = f"""
import json, sys
names = ("jax", "jaxlib", "scipy", "matplotlib", "pandas", "xarray")
sys.modules.update(dict.fromkeys(names))
from resonax.cli.app import _run
print(json.dumps([_run(line.split()) for line in {list(SLIPS)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    answers = json.loads(done.stdout)
    for (line, words), (status, sentence) in zip(SLIPS.items(), answers, strict=True):
        assert status == 2, line
        assert words in sentence, line


@pytest.mark.parametrize("name", ["stability", "map", "check", "reproduce", "sweep"])
def test_help_shows_flags_and_defaults_in_words(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    app([name, "--help"], standalone_mode=False)
    text = capsys.readouterr().out
    assert not any(words in text for words in ("(they are)", "(it has)", "(yes)", "(the default)"))
    if name == "stability":
        rows = {line.split()[1]: line for line in text.splitlines() if line.startswith("│ --")}
        assert rows["--json"].split()[2:4] == ["<bool>", "Print"]
        assert "[default: 64]" in rows["--paths"]
        assert "[default: bias]" in rows["--bias"]


COMPLETED = {
    "resonax stab": "stability",
    "resonax stability si": "sinusoid",
    "resonax stability iid --opt": "--optimizer",
    "resonax stability iid --optimizer n": "nesterov",
    "resonax reproduce theory": "theory-maps",
    "resonax map ar2 --criterion ly": "lyapunov",
}


def test_a_shell_completes_options_and_names(cli, monkeypatch):
    # The command has the name by which it was called, which is not that of the tests.
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setenv("_RESONAX_COMPLETE", "complete_bash")
    for line, word in COMPLETED.items():
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
        status, out, errors = cli("")
        assert (status, out.strip(), errors) == (0, word, "")


def test_names_are_text_on_the_terminal_too():
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=200)
    show_line("written: [red]a\x1b[31m\u202eb\udcff[/red].png", console)
    assert stream.getvalue() == "written: [red]a\\x1b[31m\\u202eb\\udcff[/red].png\n"
    line = "stability recorded --lr 0.1 --momentum 0.9 --data"
    words = [*line.split(), "[red]\x1b[31m\u202e.csv"]
    found = run_command(*words, PYTHONIOENCODING="ascii")
    assert found.returncode == 2
    assert found.stderr.endswith("no file [red]\\x1b[31m\\u202e.csv: check its name and folder\n")
