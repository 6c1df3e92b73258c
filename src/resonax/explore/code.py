"""The Python and the command line that make what a page shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import resonax
from resonax.spec.kinds import KINDS, family_names
from resonax.spec.settings import AXES, is_adaptive, parse_numbers

__all__ = [
    "EXAMPLE_OPTIONS",
    "PATHS",
    "Axis",
    "check_code",
    "is_whole",
    "map_code",
    "page_code",
    "program",
    "python_setting",
    "runs_code",
    "setting_options",
    "tidy",
    "verdict_code",
]

# Of a check of the example.
EXAMPLE_OPTIONS = {"target": "temp", "order_by": "date", "horizon": 1, "lr": 0.01, "momentum": 0.95}
Axis = dict[str, Any]  # name, first, last, count, log
_IMPORTS = {
    "np.": "import numpy as np",
    "rx.": "import resonax as rx",
    "learners.": "from resonax import learners",
}


def _parameters(asked: Mapping[str, Any], family: str, name: str) -> dict[str, Any]:
    known = family_names(family)
    return KINDS[family][name].without_zeros({key: asked[key] for key in asked if key in known})


def tidy(value: Any) -> str:
    """Return a value as it is typed, whole numbers without a point.

    Examples
    --------
    >>> tidy(22.0), tidy(0.97), tidy([1.0, 0.5]), tidy("np.eye(2)")
    ('22', '0.97', '[1, 0.5]', 'np.eye(2)')
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(tidy, value))}]"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _call(maker: str, given: Mapping[str, Any]) -> str:
    inner = ", ".join(f"{name}={tidy(value)}" for name, value in given.items())
    function = maker.partition(":")[2]
    is_public = function.partition(".")[0] in dir(resonax)
    return f"{'rx' if is_public else 'learners'}.{function}({inner})"


def features_code(asked: Mapping[str, Any], dim: int | None = None) -> str | None:
    """Return the call that makes the features; None for those that a setting has by itself.

    Without the number of inputs they are written as a function of ``dim``.
    """
    name, _, text = asked.get("basis", "linear").partition(":")
    kind = KINDS["model"][name]
    given: dict[str, Any] = {key: asked[key] for key in ("bias", "width") if key in asked}
    own = kind.names[0]
    if name == "polynomial" and text:
        given[own] = int(text)
    if kind.needs(own):
        column = [[point] for point in parse_numbers("basis", text or "1")]
        given[own] = column if dim == 1 else f"np.kron(np.eye({dim or 'dim'}), {column})"
    return None if name == "linear" and not given else _call(kind.maker, given)


def _dim(asked: Mapping[str, Any]) -> int:
    return asked.get("dim") or len(asked.get("direction") or [0])


def python_setting(asked: Mapping[str, Any], made: str | None = None) -> str:
    """Return the expression that builds a setting, or what else is ``made`` of the same parts.

    Examples
    --------
    >>> print(python_setting({"process": "iid", "lr": 0.1, "momentum": 0.9, "batch": 4}))
    rx.Setting(
        rx.Iid(),
        rx.heavy_ball(lr=0.1, momentum=0.9),
        batch=4,
    )
    """
    process = _parameters(asked, "process", asked["process"])
    if "direction" in process:
        process.setdefault("dim", len(process["direction"]))
    name = asked.get("optimizer", "heavy_ball")
    kind = KINDS["optimizer"][name]
    lines = [
        _call(KINDS["process"][asked["process"]].maker, process),
        _call(kind.maker, _parameters(asked, "optimizer", name)),
        *(f"{key}={tidy(asked[key])}" for key in ("batch", "noise", "drift") if key in asked),
    ]
    if features := features_code(asked, _dim(asked)):
        lines.append(f"model={features}")
    made = made or ("Setting" if kind.is_linear else "Problem")
    if made != "Setting" and "noise" not in asked:
        lines.append("noise=1.0")
    return f"rx.{made}(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def setting_options(asked: Mapping[str, Any], ranges: Mapping[str, str] | None = None) -> list[str]:
    """Return the options of a command that ask for a setting, some of them as ranges.

    Examples
    --------
    >>> setting_options({"process": "iid", "lr": 0.1, "bias": False}, {"momentum": "0:0.9:10"})
    ['iid', '--lr', '0.1', '--no-bias', '--momentum', '0:0.9:10']
    """
    ranges = ranges or {}
    words = [asked["process"]]
    for name, value in asked.items():
        if name == "process" or name in ranges:
            continue
        if name == "bias":
            words += [] if value else ["--no-bias"]
        elif isinstance(value, list | tuple):
            words += option_words(name, ",".join(map(tidy, value)))
        else:
            words += option_words(name, tidy(value))
    for name, text in ranges.items():
        words += option_words(name, text)
    return words


def option_words(name: str, text: str) -> list[str]:
    """Return an option with its value; one that begins with a dash must not look like another.

    Examples
    --------
    >>> option_words("weight_decay", "1"), option_words("phase", "-1")
    (['--weight-decay', '1'], ['--phase=-1'])
    """
    option = f"--{name.replace('_', '-')}"
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def program(*lines: str) -> str:
    """Return a program with the imports that it needs."""
    text = "\n".join(lines)
    needed = [line for sign, line in _IMPORTS.items() if sign in text]
    return "\n".join([*needed, "", text, ""])


def verdict_code(asked: Mapping[str, Any], adaptive: bool, paths: int) -> dict[str, str | None]:
    """Return the code that judges one setting, with some sampled paths for lyapunov."""
    call = "rx.level(setting)" if adaptive else f"rx.verdict(setting, paths={paths})"
    words = setting_options(asked) + ([] if adaptive else ["--paths", str(paths)])
    return {
        "python": program(f"setting = {python_setting(asked)}", f"print({call})"),
        "command": shlex.join(["resonax", "stability", *words]),
    }


def runs_code(asked: Mapping[str, Any], steps: int, runs: int, seed: int) -> dict[str, str | None]:
    """Return the code that follows some runs; no command does."""
    return {
        "python": program(
            f"training = {python_setting(asked, 'Training')}",
            f"found = rx.trajectories(training, runs={runs}, steps={steps}, seed={seed})",
            "print(found.steps[-1], found.in_order[:, -1], found.shuffled[:, -1])",
        ),
        "command": None,
    }


def is_whole(axis: Mapping[str, Any]) -> bool:
    """Return whether the points of an axis are rounded to whole numbers."""
    return axis.get("whole", axis["name"] == "batch")


def _points_code(axis: Axis, values: list[float]) -> str:
    if is_whole(axis):
        return str([int(value) for value in values])
    maker = "geomspace" if axis["log"] else "linspace"
    return f"np.{maker}({tidy(axis['first'])}, {tidy(axis['last'])}, {axis['count']})"


def _range_text(axis: Axis) -> str:
    ends = f"{tidy(axis['first'])}:{tidy(axis['last'])}"
    return f"{ends}:{axis['count']}{':log' if axis['log'] else ''}"


def map_code(
    asked: Mapping[str, Any],
    axes: tuple[Axis, Axis],
    values: tuple[list[float], list[float]],
    criterion: str,
) -> dict[str, str | None]:
    """Return the code that makes a map, over the vertical axis and the horizontal one.

    A range has the same distance from point to point on the command line, but for periods of a
    level: where sizes of a batch had to be rounded to whole numbers, no command makes the same map.
    """
    given = ", ".join(
        f"{axis['name']}={_points_code(axis, found)}"
        for axis, found in zip(axes, values, strict=True)
    )
    whole = all(
        axis["name"] != "batch" or _is_even(axis, found)
        for axis, found in zip(axes, values, strict=True)
    )
    ranges = {axis["name"]: _range_text(axis) for axis in sorted(axes, key=_axis_index)}
    words = ["resonax", "map", *setting_options(asked, ranges)]
    words += ["--criterion", criterion] if criterion != "map" else []
    return {
        "python": program(
            f"setting = {python_setting(asked)}",
            f'found = rx.stability_map(setting, "{criterion}", {given})',
            'found.resonax.plot().savefig("map.png")',
        ),
        "command": shlex.join([*words, "--plot", "map.png"]) if whole else None,
    }


def _axis_index(axis: Axis) -> int:
    return AXES.index(axis["name"])


def _is_even(axis: Axis, found: list[float]) -> bool:
    """Return whether the points are those of their range, without rounding."""
    count = axis["count"]
    if axis["log"] or len(found) != count:
        return False
    step = (axis["last"] - axis["first"]) / max(count - 1, 1)
    return all(abs(axis["first"] + k * step - value) < 1e-9 for k, value in enumerate(found))


PATHS = 16  # of lyapunov: a quarter of the usual number, as a click should not wait


def page_code(
    asked: Mapping[str, Any],
    run: tuple[int, int, int],
    axes: tuple[Axis, Axis],
    values: tuple[list[float], list[float]],
    criterion: str,
) -> dict[str, dict[str, str | None]]:
    """Return the code of the verdict, the map and the runs (steps, runs, seed) of a setting."""
    return {
        "verdict": verdict_code(asked, is_adaptive(asked), PATHS),
        "map": map_code(asked, axes, values, criterion),
        "runs": runs_code(asked, *run),
    }


def check_code(asked: Mapping[str, Any], source: str, example: bool) -> dict[str, str | None]:
    """Return the code that makes the same check."""
    words = [] if example else [source]
    words += ["--example"] if example else []
    left_out = EXAMPLE_OPTIONS if example else {}
    for name, value in asked.items():
        if left_out.get(name) == value:
            continue
        if isinstance(value, bool):
            off = {"standardise": "--as-is", "bias": "--no-bias", "drop_missing": None}
            on = {"standardise": None, "bias": None, "drop_missing": "--drop-missing"}
            words += [word for word in ((on if value else off)[name],) if word]
        else:
            words += option_words(name, tidy(value))
    keep = {name: value for name, value in asked.items() if name not in ("basis", "bias", "width")}
    keep.setdefault("momentum", 0.0)
    given = [f"{name}={value!r}" for name, value in keep.items()]
    if features := features_code(asked):
        given.append(f"basis=lambda dim: {features}" if "dim" in features else f"basis={features}")
    path = "EXAMPLE.path" if example else repr(source)
    python = program(
        f"found = rx.check(\n    {path},\n" + "".join(f"    {one},\n" for one in given) + ")",
        "print(found)",
    )
    if example:
        python = f"from resonax.data.example import EXAMPLE\n{python}"
    command = shlex.join(["resonax", "check", *words])
    return {"python": python, "command": command}
