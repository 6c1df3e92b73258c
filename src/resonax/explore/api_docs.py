"""The API in a table: what each path takes and gives, for `/api/docs` and the documentation."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PATHS", "Path"]


class Path(NamedTuple):
    """One path of the API."""

    method: str
    path: str
    about: str
    takes: str = ""
    gives: str = ""


_SETTING = "setting"

PATHS = (
    Path("GET", "/api/schema", "What can be asked for.", "", "processes, optimizers, bases, ..."),
    Path("GET", "/api/docs", "This table.", "", "paths"),
    Path(
        "POST",
        "/api/code",
        "The Python and the command line for a setting: no computation.",
        "setting, x, y, criterion, steps, runs, seed",
        "verdict, map, runs: {python, command} each",
    ),
    Path(
        "POST",
        "/api/verdict",
        "Four criteria for one setting, and the multipliers of a period.",
        _SETTING,
        "verdict, sentence, criteria, multipliers, multipliers_missing, order_proof, notes, level, "
        "code",
    ),
    Path(
        "POST",
        "/api/map",
        "The growth rate over two numbers, rows along y.",
        "setting, x, y: {name, first, last, count, log}, criterion",
        "x, y, quantity, rate or distance, missing, order_proof, sentence, code",
    ),
    Path(
        "POST",
        "/api/spectrum",
        "The spectrum of the inputs, and the frequencies in which a rhythm grows.",
        _SETTING,
        "frequencies, power, mean_power, lines, bands, missing, sentence",
    ),
    Path(
        "POST",
        "/api/safe",
        "The nearest momentum, step size and batch with which training converges.",
        _SETTING,
        "safe, criterion, changes, sentence",
    ),
    Path(
        "POST",
        "/api/runs",
        "A few simulated runs over time, in order and shuffled; logarithms to base 10.",
        "setting, steps, runs, seed",
        "steps, in_order, shuffled, sentence, code",
    ),
    Path(
        "GET",
        "/api/columns",
        "The columns of the file that the command line named; of the example with ?example=true.",
        "",
        "name, columns, rows, sentence, notes, options",
    ),
    Path(
        "POST",
        "/api/columns",
        "The columns of a file that is sent.",
        "a form: file, separator, decimal",
        "name, columns, rows, sentence, notes",
    ),
    Path("GET", "/api/example", "What the example is.", "", "name, title, licence, options"),
    Path(
        "POST",
        "/api/check",
        "Begin a check of a file that is sent, of the example, or of the file that was named.",
        "a form: file or example=true, and the options of resonax check",
        "job (status 202)",
    ),
    Path(
        "POST",
        "/api/check/code",
        "The Python and the command line for a check: its options are judged, no file is read.",
        "options, name, example",
        "code",
    ),
    Path("GET", "/api/jobs/{id}", "How far a check is.", "", "state, result"),
    Path("DELETE", "/api/jobs/{id}", "End a check.", "", "nothing (status 204)"),
    Path(
        "GET",
        "/api/jobs/{id}/events",
        "Follow a check by server-sent events; all since Last-Event-ID, or from the start.",
        "",
        "progress, partial, then one of result, failed, cancelled",
    ),
    Path("GET", "/api/jobs/{id}/report", "The report of a check, which stands alone.", "", "HTML"),
    Path("GET", "/api/jobs/{id}/check.json", "A check as resonax check --json prints it."),
    Path(
        "GET",
        "/api/results",
        "The folder of results.",
        "",
        "name, experiments, audits, claims, claims_damaged",
    ),
    Path(
        "GET",
        "/api/results/{experiment}",
        "The panels of an experiment, point by point.",
        "",
        "name, title, caption, panels, claims, figure, code",
    ),
    Path(
        "GET",
        "/api/results/{experiment}/cell",
        "One point of a panel, and the runs behind it.",
        "?panel=, ?x=, ?y=: the name of the panel and places along its axes, from 0",
        "coordinates, value, runs, label, sentence",
    ),
    Path(
        "GET",
        "/api/results/{experiment}/{figure}",
        "The stored figure: figure.png, figure.svg or figure-dark.png.",
        "",
        "a picture",
    ),
    Path(
        "GET",
        "/api/audits/{audit}",
        "An audit that was kept in the folder, by the name of its file.",
        "",
        "name, heading, harmful, sentence, cause, answers, cures, details, facts, runs, batches, "
        "code",
    ),
)
