"""A generator of data files that cannot be checked, each of a kind and with a seed of its own.

A maker writes a file into a folder and returns it with the options that go with it; what it spoils,
and where, is drawn. `TARGET` stands for ``--target y``.
"""

# ruff: noqa: ARG005
from __future__ import annotations

import gzip
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

Made = tuple[Path, list[str]]
Maker = Callable[[np.random.Generator, Path], Made]
TARGET = ["--target", "y"]


def _frame(rng: np.random.Generator, rows: int = 200) -> pd.DataFrame:
    """Return columns a, b, a date and a target, all of which can be used."""
    return pd.DataFrame(
        {
            "a": rng.normal(size=rows).round(4),
            "b": rng.integers(-9, 9, rows),
            "y": rng.normal(size=rows).round(4),
        }
    )


def _dated(rng: np.random.Generator) -> pd.DataFrame:
    hours = pd.date_range("2020-01-25", periods=200, freq="7h")
    return _frame(rng).assign(when=hours.strftime("%Y-%m-%d %H:%M"))


def _csv(frame: pd.DataFrame, folder: Path, **options: object) -> Path:
    frame.to_csv(folder / "a.csv", index=False, **options)  # type: ignore[call-overload]
    return folder / "a.csv"


def _text(name: str, content: Callable[[np.random.Generator], bytes | str]) -> Maker:
    def make(rng: np.random.Generator, folder: Path) -> Made:
        made = content(rng)
        (folder / name).write_bytes(made.encode() if isinstance(made, str) else made)
        return folder / name, TARGET

    return make


def _cell(*words: str, column: str | None = None) -> Maker:
    """Put one of some words into a cell."""

    def make(rng: np.random.Generator, folder: Path) -> Made:
        frame = _frame(rng).astype(object)
        where = column or str(rng.choice(["a", "b", "y"]))
        frame.loc[int(rng.integers(200)), where] = str(rng.choice(words))
        return _csv(frame, folder), TARGET

    return make


def _line(change: Callable[[str], str]) -> Maker:
    """Change one line of a file."""

    def make(rng: np.random.Generator, folder: Path) -> Made:
        path = _csv(_frame(rng), folder)
        lines = path.read_text().splitlines()
        place = int(rng.integers(1, len(lines)))
        lines[place] = change(lines[place])
        path.write_text("\n".join(lines))
        return path, TARGET

    return make


def _asked(*words: str, dated: bool = False) -> Maker:
    """A good file, and an option that it cannot serve."""

    def make(rng: np.random.Generator, folder: Path) -> Made:
        return _csv(_dated(rng) if dated else _frame(rng), folder), list(words)

    return make


def _when(change: Callable[[np.random.Generator, pd.DataFrame], pd.DataFrame]) -> Maker:
    """Spoil the dates by which rows are sorted."""

    def make(rng: np.random.Generator, folder: Path) -> Made:
        return _csv(change(rng, _dated(rng)), folder), [*TARGET, "--order-by", "when"]

    return make


def _frames(change: Callable[[np.random.Generator, pd.DataFrame], pd.DataFrame]) -> Maker:
    def make(rng: np.random.Generator, folder: Path) -> Made:
        return _csv(change(rng, _frame(rng)), folder), TARGET

    return make


def _array(change: Callable[[np.random.Generator], np.ndarray], *words: str) -> Maker:
    def make(rng: np.random.Generator, folder: Path) -> Made:
        np.save(folder / "a.npy", change(rng))
        return folder / "a.npy", list(words)

    return make


def _archive(change: Callable[[np.random.Generator], dict[str, np.ndarray]]) -> Maker:
    def make(rng: np.random.Generator, folder: Path) -> Made:
        np.savez(folder / "a.npz", **change(rng))  # type: ignore[arg-type]
        return folder / "a.npz", []

    return make


def _damaged(name: str, spoil: Callable[[np.random.Generator, bytes], bytes]) -> Maker:
    """Write a good file and damage its bytes."""

    def make(rng: np.random.Generator, folder: Path) -> Made:
        frame, path = _frame(rng, 3000), folder / name
        if name.endswith(".npy"):
            np.save(path, frame.to_numpy(dtype=float))
        elif name.endswith(".npz"):
            np.savez_compressed(path, X=frame.to_numpy(dtype=float))
        elif name.endswith(".parquet"):
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False)
        path.write_bytes(spoil(rng, path.read_bytes()))
        return path, ["--target", "2" if ".np" in name else "y"]

    return make


def _cut(rng: np.random.Generator, content: bytes) -> bytes:
    return content[: int(rng.integers(8, len(content) - 1))]


def _flipped(rng: np.random.Generator, content: bytes) -> bytes:
    """Change bytes in the middle, where every packed format has a sum over them."""
    first = int(rng.integers(len(content) // 4, len(content) // 2))
    return content[:first] + rng.bytes(200) + content[first + 200 :]


def _place(make_place: Callable[[Path], Path]) -> Maker:
    def make(rng: np.random.Generator, folder: Path) -> Made:
        return make_place(folder), []

    return make


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "a.csv")
    return folder / "a.csv"


def _link(target: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "a.csv").symlink_to(target)
        return folder / "a.csv"

    return make


def _sub(folder: Path) -> Path:
    (folder / "a.csv").mkdir()
    return folder / "a.csv"


def _no_arrays(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "no array")
    return folder / "a.npz"


def _bomb(rng: np.random.Generator) -> bytes:
    return gzip.compress(rng.bytes(3).hex().encode() * 3 * 2**20, 1, mtime=0)


def _normal(*shape: int) -> Callable[[np.random.Generator], np.ndarray]:
    return lambda rng: rng.normal(size=shape)


KINDS: dict[str, Maker] = {
    # what is no table
    "empty": _text("a.csv", lambda rng: b""),
    "blank": _text("a.csv", lambda rng: b"\n \r\n" * int(rng.integers(1, 99))),
    "binary": _text("a.csv", lambda rng: rng.bytes(9999)),
    "header only": _text("a.csv", lambda rng: "a,b,y\n"),
    "one row": _text("a.csv", lambda rng: "a,b,y\n1,2,3\n"),
    "utf-16": _text("a.csv", lambda rng: _frame(rng).to_csv(index=False).encode("utf-16")),
    "utf-32": _text("a.csv", lambda rng: _frame(rng).to_csv(index=False).encode("utf-32")),
    "latin header": _text("a.csv", lambda rng: "h\u00f6he,y\n1,2\n3,4\n".encode("latin-1")),
    "latin cell": _text("a.csv", lambda rng: b"a,y\n" + b"1,2\n" * 300 + b"\xe9,2\n"),
    "mark and no target": _text("a.csv", lambda rng: "\ufeffa,b\n1,2\n3,4\n"),
    "zero byte": _text("a.csv", lambda rng: b"a,y\n" + b"1,2\n" * 50000 + b"1\0,2\n"),
    "web page": _text("a.csv", lambda rng: "<!DOCTYPE html>\n<html><body>404</body></html>\n"),
    "json": _text("a.csv", lambda rng: '{"a": [1, 2], "y": [3, 4]}\n'),
    "one long line": _text("a.csv.gz", _bomb),
    "empty gzip": _text("a.csv.gz", lambda rng: gzip.compress(b"", mtime=0)),
    "plain gzip": _text("a.csv.gz", lambda rng: _frame(rng).to_csv()),
    "plain parquet": _text("a.parquet", lambda rng: _frame(rng).to_csv()),
    "plain npy": _text("a.npy", lambda rng: _frame(rng).to_csv()),
    "plain npz": _text("a.npz", lambda rng: _frame(rng).to_csv()),
    "zip of nothing": _text("a.npz", lambda rng: b"PK\5\6" + bytes(18)),
    "sheet": _text("a.xlsx", lambda rng: b"PK\3\4" + rng.bytes(99)),
    "text file": _text("a.txt", lambda rng: _frame(rng).to_csv()),
    "no ending": _text("a", lambda rng: _frame(rng).to_csv()),
    # headers and rows
    "duplicate header": _frames(lambda rng, frame: frame.set_axis(["a", "a", "y"], axis=1)),
    "nameless column": _frames(lambda rng, frame: frame.set_axis(["a", "", "y"], axis=1)),
    "target alone": _frames(lambda rng, frame: frame[["y"]]),
    "short row": _line(lambda line: line.rsplit(",", 1)[0]),
    "long row": _line(lambda line: f"{line},7"),
    "quote": _line(lambda line: f'"{line}'),
    "semicolon row": _line(lambda line: line.replace(",", ";")),
    "wide": _array(_normal(9, 3000)),
    # values
    "missing": _cell("", "nan", "NA", "null"),
    "infinite": _cell("inf", "-inf", "1e999"),
    "large": _cell("1e200", "-3e180"),
    "digits": _cell("7" * 400, "-" + "3" * 4000),
    "word": _cell("x", "--", "1.2.3", "12 m"),
    "decimal comma": _cell('1,5"', column="a"),
    "thousands": _cell("1,234.5", column="a"),
    "control characters": _cell("\x1b[31m1", "\u202e12"),
    "markup": _cell("[red]1[/]", "<b>1</b>"),
    "complex": _cell("1+2j", column="a"),
    "constant": _frames(lambda rng, frame: frame.assign(b=7)),
    "constant target": _frames(lambda rng, frame: frame.assign(y=0.1)),
    "text column": _frames(lambda rng, frame: frame.assign(b="Rome")),
    "text target": _frames(lambda rng, frame: frame.assign(y=["Rome", "Oslo"] * 100)),
    "all text": _frames(lambda rng, frame: frame.assign(a="x", b="y")),
    "date column": _frames(lambda rng, frame: frame.assign(b="2020-01-31")),
    "empty column": _frames(lambda rng, frame: frame.assign(b=np.nan)),
    # arrays and archives
    "objects": _array(lambda rng: np.array([[1, "a"]] * 99, dtype=object)),
    "complex array": _array(lambda rng: rng.normal(size=(99, 2)) * 1j),
    "words": _array(lambda rng: np.array([["a", "b"]] * 99)),
    "records": _array(lambda rng: np.zeros(99, dtype=[("a", float), ("b", float)])),
    "dates": _array(lambda rng: np.arange(99).astype("M8[s]")),
    "no axes": _array(lambda rng: np.array(3.0)),
    "three axes": _array(_normal(9, 9, 2)),
    "no rows": _array(lambda rng: np.zeros((0, 3))),
    "no columns": _array(lambda rng: np.zeros((99, 0))),
    "array with gaps": _array(lambda rng: np.where(np.eye(99, 3) > 0, np.nan, _normal(99, 3)(rng))),
    "column out of range": _array(_normal(99, 3), "--target", "3"),
    "separator of an array": _array(_normal(99, 3), "--separator", ";"),
    "two tables": _archive(lambda rng: {"a": _normal(99, 3)(rng), "b": _normal(99, 3)(rng)}),
    "uneven target": _archive(lambda rng: {"X": _normal(99, 3)(rng), "y": _normal(98)(rng)}),
    "object archive": _archive(lambda rng: {"X": np.array([[1, "a"]] * 99, dtype=object)}),
    "no arrays": _place(_no_arrays),
    **{
        f"{word} {name}": _damaged(name, spoil)
        for word, spoil in (("cut", _cut), ("damaged", _flipped))
        for name in ("a.csv.gz", "a.npz", "a.parquet")
    },
    "cut npy": _damaged("a.npy", _cut),
    # places
    "folder": _place(_sub),
    "pipe": _place(_pipe),
    "device": _place(lambda folder: Path("/dev/null")),
    "nowhere": _place(lambda folder: folder / "a.csv"),
    "nowhere with markup": _place(lambda folder: folder / "[red]\x1b[31m\u202e.csv"),
    "link to nothing": _place(_link("nothing.csv")),
    "link to itself": _place(_link("a.csv")),
    "long name": _place(lambda folder: folder / (300 * "a" + ".csv")),
    # dates
    "bad date": _when(lambda rng, frame: frame.assign(when=frame.when.where(
        frame.index != rng.integers(1, 200), "2020-13-45"))),
    "no date": _when(lambda rng, frame: frame.assign(when=frame.when.mask(
        frame.index == rng.integers(200)))),
    "words for dates": _when(lambda rng, frame: frame.assign(when=["soon", "late"] * 100)),
    "day or month": _when(lambda rng, frame: frame.assign(
        when=[f"{day:02}/{13 - day:02}/2020" for day in rng.integers(1, 13, 200)])),
    # options that the file cannot serve
    "unknown target": _asked("--target", "z"),
    "unknown feature": _asked(*TARGET, "--features", "a,z"),
    "feature twice": _asked(*TARGET, "--features", "a,a"),
    "target as feature": _asked(*TARGET, "--features", "a,y"),
    "no features": _asked(*TARGET, "--features", ","),
    "unknown order": _asked(*TARGET, "--order-by", "z"),
    "unknown group": _asked(*TARGET, "--group-by", "z"),
    "no groups": _asked(*TARGET, "--group-by", "when", dated=True),
    "dates unasked": _asked(*TARGET, dated=True),
    "far horizon": _asked(*TARGET, "--horizon", "200"),
    "no horizon": _asked(*TARGET, "--horizon", "0"),
    "half a horizon": _asked(*TARGET, "--horizon", "1.5"),
    "endless horizon": _asked(*TARGET, "--horizon", "9" * 500),
    "horizon of nothing": _asked("--horizon", "1"),
    "no separator": _asked(*TARGET, "--separator", ""),
    "long separator": _asked(*TARGET, "--separator", "::"),
    "wrong separator": _asked(*TARGET, "--separator", ";"),
    "no decimal": _asked(*TARGET, "--decimal", "x"),
    "decimal and separator": _asked(*TARGET, "--decimal", ","),
    "too large as it is": _array(lambda rng: 1e8 * rng.normal(size=(99, 2)), "--as-is"),
}  # fmt: skip
