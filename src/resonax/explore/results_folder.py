"""A folder of results, as JSON: experiments, panels, runs and claims, and the audits kept there.

Functions here run in a thread of `work`: between two parts of the work they call their first
argument, which raises if nobody waits for the answer any more.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from resonax.core.errors import ResonaxError, StoreError
from resonax.core.objects import plain_values
from resonax.explore.audits import audit_names
from resonax.explore.errors import RequestError
from resonax.explore.panels import find_panels, panel_cell, panel_table
from resonax.paper.catalogue import EXPERIMENTS, SCALES, catalogue
from resonax.reports.claims import read_claims
from resonax.store import TASKS, open_store, read_metadata
from resonax.sweeps.judgement import Case, deciding_case

__all__ = ["find_figure", "list_results", "names", "show_cell", "show_experiment"]

CheckCancelled = Callable[..., None]
_FIGURES = {"figure.png": ".png", "figure.svg": ".svg", "figure-dark.png": "-dark.png"}


def names(folder: Path) -> list[str]:
    """Return the experiments of a folder, those of the paper in its order."""
    found = sorted(path.stem for path in (folder / "results").glob("*.zarr") if path.is_dir())
    paper = [name for name in EXPERIMENTS if name in found]
    return [*paper, *(name for name in found if name not in EXPERIMENTS)]


def _store(folder: Path, name: str) -> Path:
    """Return the store of an experiment, by a name that is in the folder."""
    if name not in names(folder):
        raise RequestError("There is no such experiment in this folder.", 404)
    return folder / "results" / f"{name}.zarr"


def find_figure(check: CheckCancelled, folder: str, name: str, kind: str) -> tuple[str, str]:
    """Return the path of the stored figure of an experiment, and what kind of picture it is."""
    check()
    _store(Path(folder), name)
    if kind not in _FIGURES:
        raise RequestError("There is no such figure: ask for figure.png or figure.svg.", 404)
    path = Path(folder) / "figures" / f"{name}{_FIGURES[kind]}"
    if not path.is_file():
        raise RequestError("This experiment has no stored figure.", 404)
    return str(path), "image/svg+xml" if kind.endswith("svg") else "image/png"


def list_results(check: CheckCancelled, folder: str) -> dict[str, Any]:
    """Return all experiments and audits of a folder, and the claims that were judged.

    The folder may be the file of one audit.
    """
    home, experiments = Path(folder), []
    for name in names(home):
        check()
        experiments.append(_entry(home, name))
    return {
        "name": home.name,
        "experiments": experiments,
        "audits": [{"name": name} for name in audit_names(home)],
        "claims": [_claim(claim) for claim in _claims(home)],
        "claims_damaged": _damage_of_claims(home),
    }


def _entry(home: Path, name: str) -> dict[str, Any]:
    store = _store(home, name)
    try:
        metadata = read_metadata(store)
    except ResonaxError as error:
        entry = {"name": name, "title": name, "done": False, "panels": 0}
        return entry | {"sentence": f"{error}."}
    title, marked = metadata.attributes.get("title", name), len(metadata.finished)
    tasks, panels = metadata.layout.count(), len(metadata.layout.coords.get("panel", [0]))
    said = f"{marked} of {tasks} tasks are marked done."
    entry = {"name": name, "title": title, "done": marked == tasks, "panels": panels}
    return entry | {"sentence": said}


def _claims(home: Path) -> list[dict[str, Any]]:
    """Return the stored claims, none if the file is damaged: the numbers can be shown all the same.

    `resonax reproduce` judges them again, and says what it found.
    """
    try:
        return read_claims(home / "claims.json") if home.is_dir() else []
    except StoreError:
        return []


def _damage_of_claims(home: Path) -> str | None:
    try:
        if home.is_dir():
            read_claims(home / "claims.json")
    except StoreError as error:
        return f"{error}."
    return None


def _claim(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a stored claim with the case that decides it."""
    worst = deciding_case(map(Case.from_dict, claim["cases"]), claim["holds"])
    return plain_values(
        {
            "id": claim["id"],
            "statement": claim["claim"],
            "outcome": claim["outcome"],
            "holds": claim["holds"],
            "quantity": claim["quantity"],
            "worst": worst,
            "cases": claim["cases"],
            "reason": claim["reason"],
            "note": claim["note"],
        }
    )


@functools.lru_cache(maxsize=3)
def _dataset(path: Path, changed: float) -> Any:
    del changed
    return open_store(path)


def _load(home: Path, name: str) -> Any:
    store = _store(home, name)
    try:
        return _dataset(store, (store / TASKS).stat().st_mtime)
    except OSError:
        raise StoreError(f"{store} could not be read") from None


def _scale(home: Path) -> str:
    scales = [claim["scale"] for claim in _claims(home)]
    return scales[0] if scales and scales[0] in SCALES else "smoke"


@functools.lru_cache(maxsize=2)
def _records(scale: str) -> dict[str, Any]:
    return {record.id: record for record in catalogue((), scale)}


def _claims_of(home: Path, name: str) -> list[dict[str, Any]]:
    """Return the claims on one experiment: judges give them in the order of the records."""
    stored, found = set(names(home)), _claims(home)
    makers = [
        record.id
        for record in _records(_scale(home)).values()
        for judge in record.judges
        if {record.id, *judge.also} <= stored
    ]
    if len(makers) != len(found):  # of several runs, or of another version
        return []
    return [claim for claim, maker in zip(found, makers, strict=True) if maker == name]


def show_experiment(check: CheckCancelled, folder: str, name: str) -> dict[str, Any]:
    """Return the panels of an experiment, point by point, and the claims on it."""
    home = Path(folder)
    dataset = _load(home, name)
    check()
    record = _records(_scale(home)).get(name) if name in EXPERIMENTS else None
    return plain_values(
        {
            "name": name,
            "title": dataset.attrs.get("title", name),
            "caption": record.caption if record else "",
            "panels": [panel_table(dataset, panel) for panel in find_panels(dataset)],
            "claims": [_claim(claim) for claim in _claims_of(home, name)] if record else [],
            "figure": (home / "figures" / f"{name}.png").is_file(),
            "code": _code(home, name),
        }
    )


def show_cell(
    check: CheckCancelled, folder: str, name: str, panel: str, x: int, y: int
) -> dict[str, Any]:
    """Return the numbers and the runs behind one point of a panel."""
    dataset = _load(Path(folder), name)
    check()
    chosen = next((one for one in find_panels(dataset) if one.name == panel), None)
    if chosen is None:
        raise RequestError("There is no such panel in this experiment.", 404)
    return plain_values(panel_cell(dataset, chosen, x, y))


def _code(home: Path, name: str) -> dict[str, str | None]:
    path = f"{home.name}/results/{name}.zarr"
    words = ["resonax", "reproduce", name, "--scale", _scale(home), "--out", home.name]
    return {
        "python": f"import resonax as rx\n\ndataset = rx.open_store({path!r})\nprint(dataset)\n",
        "command": shlex.join(words) if name in EXPERIMENTS else None,
    }
