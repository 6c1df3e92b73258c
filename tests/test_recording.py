"""Recordings: every source gives the same numbers, and bad data one sentence that helps."""

from __future__ import annotations

import builtins
import contextlib
import gc
import gzip
import io
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from resonax.core.errors import ArgumentError, DataError, ResonaxError
from resonax.recordings import delimited, sources
from resonax.recordings.recording import Recording, read_recording

ROWS = 57
RNG = np.random.default_rng(0)
VALUES = np.column_stack(
    [
        1e9 + RNG.normal(size=ROWS),
        1e-7 * RNG.normal(size=ROWS),
        RNG.integers(-5, 5, ROWS),
        RNG.integers(0, 2, ROWS),
        RNG.normal(size=ROWS),
    ]
)
NAMES = ["pressure", "trace", "count", "open", "y"]
FRAME = pd.DataFrame(VALUES, columns=NAMES).astype({"count": int, "open": bool})


def write(frame: pd.DataFrame, path: Path) -> Path:
    """Write a data frame as a file of the kind that its ending says."""
    if path.suffix == ".npy":
        np.save(path, frame.to_numpy(dtype=float))
    elif path.suffix == ".npz":
        np.savez(path, X=frame.to_numpy(dtype=float)[:, :-1], y=frame["y"])
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def expected(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.longdouble)
    return ((values - values.mean(axis=0)) / values.std(axis=0)).astype(np.float32)


def check(recording: Recording, values: np.ndarray = VALUES) -> None:
    wanted = expected(values)
    assert recording.inputs.dtype == np.float32
    np.testing.assert_allclose(recording.inputs, wanted[:, :-1], rtol=2e-6, atol=2e-6)
    assert recording.target is not None
    assert recording.target.dtype == np.float32
    np.testing.assert_allclose(recording.target, wanted[:, -1], rtol=2e-6, atol=2e-6)
    assert "columns were standardised to mean 0 and variance 1" in recording.notes


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (delimited, sources):
        monkeypatch.setattr(module, "PIECE", 5 * 20)  # 20 rows, which do not divide the 57


FILES = ["a.csv", "a.tsv", "a.csv.gz", "a.TSV.GZ", "a.parquet", "a.npy", "a.npz"]


@pytest.mark.parametrize("memory", [0, 2**28, 3000])
@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path: Path, small_pieces: None, name: str, memory: int) -> None:
    path = write(FRAME, tmp_path / name.lower()).rename(tmp_path / name)
    numbered = ".np" in name
    target = {"a.npy": "4", "a.npz": None}.get(name, "y")
    recording = read_recording(str(path), target, memory=memory)
    check(recording)
    assert isinstance(recording.inputs, np.memmap) == (memory < 57 * 4 * 4 or memory == 0)
    assert recording.source == name
    assert recording.names == (("0", "1", "2", "3") if numbered else tuple(NAMES[:-1]))
    assert recording.target_name == ("4" if name == "a.npy" else "y")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(lambda: (FRAME, "y"), id="frame"),
        pytest.param(lambda: (FRAME.convert_dtypes(), "y"), id="nullable"),
        pytest.param(lambda: (FRAME.astype(object), "y"), id="objects"),
        pytest.param(lambda: (FRAME[NAMES[:-1]], FRAME["y"]), id="series"),
        pytest.param(lambda: (VALUES, 4), id="array"),
        pytest.param(lambda: (VALUES.tolist(), -1), id="list"),
        pytest.param(lambda: (VALUES[:, :-1], VALUES[:, -1:]), id="beside"),
        pytest.param(lambda: (np.asfortranarray(VALUES), "-1"), id="columns first"),
        pytest.param(lambda: (np.ma.masked_array(VALUES), "4"), id="masked"),
    ],
)
@pytest.mark.usefixtures("small_pieces")
def test_values(source: Callable) -> None:
    check(read_recording(*source()))


def test_other_tables() -> None:
    import pyarrow

    check(read_recording(pyarrow.Table.from_pandas(FRAME), "y"))


def test_one_column() -> None:
    recording = read_recording([1, 2, 4])
    np.testing.assert_allclose(recording.inputs, expected(np.array([[1], [2], [4]])), rtol=1e-6)
    assert (recording.target, recording.target_name, recording.source) == (None, None, "array")


def test_features(tmp_path: Path) -> None:
    path = write(FRAME.assign(city="Rome"), tmp_path / "a.csv")
    for features in ("count, pressure", ["count", "pressure"]):
        recording = read_recording(path, "y", features=features)
        assert recording.names == ("count", "pressure")
        check(recording, VALUES[:, [2, 0, 4]])
    assert read_recording(VALUES, features=2).names == ("2",)
    assert read_recording(VALUES, "0", features=[1, "3"]).names == ("1", "3")


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", table=VALUES, scale=np.ones(3))
    assert read_recording(tmp_path / "a.npz").names == ("0", "1", "2", "3", "4")
    path = write(FRAME, tmp_path / "b.npz")
    assert read_recording(path, "1").names == ("0", "2", "3")  # y is no feature
    check(read_recording(path, "y"))


def test_as_it_is() -> None:
    recording = read_recording(VALUES[:, 1:], -1, standardise=False)
    np.testing.assert_array_equal(recording.inputs, VALUES[:, 1:-1].astype(np.float32))
    assert recording.notes == ()
    with pytest.raises(DataError, match=r"above 1e\+06 in column '0' .*: standardise"):
        read_recording(VALUES, standardise=False)


@pytest.mark.parametrize("offset", [0, 1e9, -1e12, 1e140])
@pytest.mark.usefixtures("small_pieces")
def test_badly_scaled(offset: float) -> None:
    drift = np.linspace(-1, 1, ROWS) * max(1.0, 1e-9 * abs(offset))
    values = np.column_stack([offset + drift * scale for scale in (1, 1e3, 1e8)])
    recording = read_recording(values)
    np.testing.assert_allclose(recording.inputs, expected(values), rtol=1e-6, atol=1e-6)
    inputs = recording.inputs.astype(float)
    np.testing.assert_allclose(inputs.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(inputs.std(axis=0), 1, rtol=1e-6)


DAYS = pd.date_range("2021-12-25", periods=ROWS, freq="17h")


@pytest.mark.parametrize("memory", [0, 2**28])
@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
@pytest.mark.parametrize(
    "write_time",
    [
        pytest.param(lambda days: days, id="dates"),
        pytest.param(lambda days: days.tz_localize("Europe/Rome"), id="zone"),
        pytest.param(lambda days: days.strftime("%d/%m/%Y %H:%M"), id="day first"),
        pytest.param(lambda days: days.strftime("%m/%d/%Y %H:%M"), id="month first"),
        pytest.param(lambda days: days.strftime("%d %b %Y %H:%M"), id="words"),
        pytest.param(lambda days: days.astype("int64"), id="integers"),
        pytest.param(lambda days: (days - days[0]).total_seconds(), id="seconds"),
    ],
)
@pytest.mark.usefixtures("small_pieces")
def test_order(tmp_path: Path, write_time: Callable, ending: str, memory: int) -> None:
    shuffled = FRAME.assign(when=write_time(DAYS)).sample(frac=1, random_state=1)
    source = shuffled if ending == "frame" else write(shuffled, tmp_path / f"a.{ending}")
    recording = read_recording(source, "y", order_by="when", memory=memory)
    check(recording)
    assert recording.names == tuple(NAMES[:-1])
    assert "rows were sorted by when" in recording.notes


SERIES = pd.DataFrame(
    {
        "hour": [3, 1, 2, 1, 2, 4, 3, 5, 4],
        "where": ["b", "a", "a", "b", "b", "a", "a", "a", "b"],
        "x": [13, 1, 2, 11, 12, np.nan, 3, 5, 14],
        "z": [3, 2, 4, 1, 7, 4, 6, 5, 0],
    }
)


def test_horizon() -> None:
    """The target comes from the same series, and a gap costs the rows that need what is missing."""
    options = {"standardise": False, "order_by": "hour", "horizon": 1, "drop_missing": True}
    both = read_recording(SERIES, "x", group_by="where", **options)
    assert both.names == ("x", "z")
    assert both.target_name == "x, 1 row later"
    np.testing.assert_array_equal(both.inputs[:, 0], [1, 2, 11, 12, 13])
    np.testing.assert_array_equal(both.target, [2, 3, 12, 13, 14])
    np.testing.assert_array_equal(both.inputs[:, 1], [2, 4, 1, 7, 3])
    assert (both.starts, both.series) == ((0, 2), ("a", "b"))
    assert "rows are in 2 series by where: a, b" in both.notes
    assert "2 of 9 rows were left out for missing values" in both.notes
    assert "the target is x 1 row later" in both.notes
    assert not any("not even" in note for note in both.notes)
    only = read_recording(SERIES, "x", features="z", group_by="where", **options)
    np.testing.assert_array_equal(only.inputs[:, 0], [2, 4, 4, 1, 7, 3])  # x = 5 follows the gap
    np.testing.assert_array_equal(only.target, [2, 3, 5, 12, 13, 14])
    alone = read_recording(SERIES[SERIES["where"] == "b"], "x", features="x", horizon=2)
    assert (len(alone.inputs), alone.starts) == (2, (0,))


def test_missing_keys_are_left_out() -> None:
    frame = SERIES.assign(hour=SERIES["hour"].mask(SERIES.index == 2))
    recording = read_recording(
        frame, "z", order_by="hour", group_by="where", drop_missing=True, standardise=False
    )
    np.testing.assert_array_equal(recording.inputs[:, 0], [1, 3, 5, 11, 12, 13, 14])
    with pytest.raises(DataError, match=r"missing values in column 'hour' \(row 3\)"):
        read_recording(frame.fillna({"x": 0}), "z", order_by="hour", group_by="where")


@pytest.mark.parametrize(
    ("times", "note"),
    [
        (DAYS, None),
        (DAYS[[*range(5), *range(9, ROWS)]], "(1 of 52: 3.54167 d instead of 17 h)"),
        (np.arange(ROWS) ** 2, "(56 of 56: 1 to 111 instead of 56)"),
        (np.arange(ROWS), None),
        (np.arange(ROWS) * 0.1, None),
        (DAYS.strftime("%d/%m/%Y %H:%M"), "dates of when were read as %d/%m/%Y %H:%M"),
    ],
)
def test_what_is_said_of_times(times: object, note: str | None) -> None:
    frame = FRAME.iloc[: len(times)].assign(when=times)  # type: ignore[arg-type]
    notes = read_recording(frame, "y", order_by="when").notes
    assert notes[int("dates" in (note or ""))] == "rows are in the order of when"
    assert len(notes) == 2 + (note is not None)
    assert note is None or any(note in text for text in notes)


@pytest.mark.parametrize("memory", [0, 2**28])
@pytest.mark.parametrize(
    ("values", "classes"),
    [
        ([1, 0], ("0", "1")),
        ([-1.5, 7.0], ("-1.5", "7.0")),
        ([True, False], ("False", "True")),
        (["yes", "no"], ("no", "yes")),
    ],
)
@pytest.mark.usefixtures("small_pieces")
def test_labels(tmp_path: Path, values: list, classes: tuple[str, str], memory: int) -> None:
    column = [values[i % 3 == 0] for i in range(ROWS)]
    frame = FRAME.assign(y=column)
    for source in (frame, write(frame, tmp_path / "a.csv")):
        recording = read_recording(source, "y", labels=True, memory=memory)
        assert recording.classes == classes
        wanted = [float(str(value) == classes[1]) for value in column]
        np.testing.assert_array_equal(recording.target, wanted)
        assert recording.two_valued
        assert f"the class 1 of y is {classes[1]}, and 0 is {classes[0]}" in recording.notes
    assert not read_recording(FRAME, "y").two_valued


def test_order_is_stable() -> None:
    values = np.column_stack([np.tile([2, 1], 20), np.arange(40)])
    inputs = read_recording(values, order_by=0, features="0,1", standardise=False).inputs
    np.testing.assert_array_equal(inputs[:, 1], [*range(1, 40, 2), *range(0, 40, 2)])


@pytest.mark.parametrize(
    ("text", "names", "inputs", "note"),
    [
        ("1,2\n3,5\n4,5\n", ("0", "1"), [[1, 2], [3, 5], [4, 5]], "columns are numbered from 0"),
        (",a,b\n0,1,2\n1,4,5\n", ("a", "b"), [[1, 2], [4, 5]], "left out as an index"),
        ("0,1,2\n1,2,3\n4,5,6\n", ("0", "1", "2"), [[1, 2, 3], [4, 5, 6]], "taken as names"),
        ("Unnamed: 0,a\n0,2\n1,5\n", ("a",), [[2], [5]], "left out as an index"),
        (",0,1\n0,2,3\n1,5,6\n", ("0", "1"), [[2, 3], [5, 6]], "left out as an index"),
        ('\ufeff"a, b",c\r\n\r\n1, 2\r\n4,5', ("a, b", "c"), [[1, 2], [4, 5]], ""),
        ("\ufeff1,2\n4,5\n", ("0", "1"), [[1, 2], [4, 5]], ""),
        ("# a,b\n1,True\n4,False\n", ("a", "b"), [[1, 1], [4, 0]], ""),
    ],
)
def test_headers(
    tmp_path: Path, text: str, names: tuple[str, ...], inputs: list[list[float]], note: str
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    recording = read_recording(tmp_path / "a.csv", standardise=False)
    assert recording.names == names
    assert recording.inputs.tolist() == inputs
    assert note in " ".join(recording.notes)


@pytest.mark.parametrize(
    ("name", "text", "options", "notes"),
    [
        ("a.csv", "a;b\n1.5;2\n4;5\n", {}, ["separated by semicolons"]),
        ("a.csv", "a;b\n1,5;2\n4;5\n", {}, ["separated by semicolons", "a decimal comma"]),
        ("a.csv", "1,5;2\n4,0;5\n", {}, ["semicolons", "a decimal comma", "numbered from 0"]),
        ("a.csv", "a\tb\n1.5\t2\n4\t5\n", {}, ["separated by tabs"]),
        ("a.csv", "a|b\n1.5|2\n4|5\n", {}, ["separated by vertical bars"]),
        ("a.tsv", "a,b\n1.5,2\n4,5\n", {}, ["separated by commas"]),
        ("a.tsv", "a\tb\n1,5\t2\n4\t5\n", {}, ["a decimal comma"]),
        ("a.csv", "a:b\n1.5:2\n4:5\n", {"separator": ":"}, []),
        ("a.csv", "a b\n1.5  2\n4 5\n", {"separator": "space"}, []),
        ("a.csv", "a\tb\n1,5\t2\n4\t5\n", {"separator": "tab", "decimal": ","}, []),
        ("a.csv", "a,b\n1.5,2\n4,5\n", {"separator": ",", "decimal": "."}, []),
    ],
)
def test_dialects(tmp_path: Path, name: str, text: str, options: dict, notes: list[str]) -> None:
    (tmp_path / name).write_text(text)
    recording = read_recording(tmp_path / name, standardise=False, **options)
    assert recording.inputs.tolist() == [[1.5, 2], [4, 5]]
    assert len(recording.notes) == len(notes)
    for note, part in zip(recording.notes, notes, strict=True):
        assert note.endswith(part)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("a.csv", {"separator": "ab"}, "separator must be one character, .*got 'ab'"),
        ("a.csv", {"separator": "1"}, "separator must be one character"),
        ("a.csv", {"separator": '"'}, "separator must be one character"),
        ("a.csv", {"decimal": "x"}, "decimal must be . or , got 'x'"),
        ("a.csv", {"decimal": ","}, "separator and decimal are both ','"),
        ("a.npy", {"separator": ";"}, "a.npy is no text and has no separator"),
        ("a.parquet", {"decimal": ","}, "a.parquet is no text and has no decimal"),
    ],
)
def test_bad_dialects(tmp_path: Path, name: str, options: dict, match: str) -> None:
    with pytest.raises(ResonaxError, match=match):
        read_recording(write(FRAME, tmp_path / name), **options)
    with pytest.raises(ArgumentError, match="separator and decimal are of text files"):
        read_recording(FRAME, separator=";")


def test_names_that_cannot_be_shown(tmp_path: Path) -> None:
    names = ["[red]", "<b>", "a\x1b[31m", "b\u202e", "y"]
    shown = ("[red]", "<b>", r"a\x1b[31m", r"b\u202e")
    path = write(FRAME.set_axis(names, axis=1), tmp_path / "a\u202e.csv")
    recording = read_recording(path, "y")
    check(recording)
    assert recording.names == shown
    assert recording.source == r"a\u202e.csv"
    assert read_recording(path, "y", features="b\u202e").names == shown[3:]
    with pytest.raises(ArgumentError, match="unknown target") as caught:
        read_recording(path, "\x1b")
    assert str(caught.value).isprintable()


def test_quoted_commas(tmp_path: Path) -> None:
    frame = FRAME.assign(place="Rome, Italy\nEurope")
    check(read_recording(write(frame, tmp_path / "a.csv"), "y", features=NAMES[:-1]))


GOOD = "a,b,y\n" + "".join(f"{i},{i * i % 7},{i % 3}\n" for i in range(1, 31))


def spoiled(row: int, line: str) -> bytes:
    lines = GOOD.splitlines()
    lines[row] = line
    return "\n".join(lines).encode()


BAD_FILES = {
    "empty": ("a.csv", b"", "a.csv is empty"),
    "blank": ("a.csv", b"\n  \n", "a.csv is empty"),
    "header only": ("a.csv", b"a,b\n", "a.csv has no rows of data: at least 2"),
    "one row": ("a.csv", b"a,b\n1,2\n", "a.csv has 1 row of data: at least 2"),
    "missing": ("a.csv", spoiled(3, "3,,0"), r"missing values in column 'b' \(row 3\): fill them"),
    "infinite": ("a.csv", spoiled(3, "3,-inf,0"), r"infinite values in column 'b' \(row 3\): rep"),
    "overflows": ("a.csv", spoiled(4, "3,1e999,0"), r"infinite values in column 'b' \(row 4\)"),
    "too large": ("a.csv", spoiled(3, "3,1e200,0"), r"above 1e\+150 in column 'b' \(row 3\): corr"),
    "word": (
        "a.csv",
        spoiled(3, "3,x,0"),
        r"'b' holds text in row 3 \('x'\): correct .*`features` a$",
    ),
    "too long": ("a.csv", spoiled(3, "3,1,0,9"), "row 3 of a.csv has 4 fields instead of 3: corr"),
    "long first": ("a.csv", spoiled(1, "3,1,0,9"), "row 1 of a.csv has 4 fields instead of 3"),
    "too short": ("a.csv", spoiled(3, "3,1"), "row 3 of a.csv has 2 fields instead of 3: correct"),
    "cut": ("a.csv", spoiled(30, "3,1"), "row 30 of a.csv has 2 .* of 3: the file seems to be cut"),
    "quote": ("a.csv", spoiled(9, '3,"1,4'), "quotation mark that is never closed: .* be cut"),
    "decimals": (
        "a.csv",
        b"a;b\n2;3.5\n1,5;4\n7;1\n",
        "'a' holds text in row 2 .'1,5'.: cor",
    ),
    "decimals later": (
        "a.csv",
        b"a;b\n" + 30 * b"1,5;2\n2;3\n" + b"1.5;3\n",
        "column 'a' has 1.5 in row 61, but its decimals are commas: write them all alike",
    ),
    "one column": ("a.csv", b"a\n1,5\n2,5\n", "row 1 of a.csv has 2 fields instead of 1"),
    "zeros": ("a.csv", GOOD.encode() + 99999 * b"1,2,3\n" + b"1,2\0,3\n", "not UTF-8 text"),
    "many digits": ("a.csv", spoiled(3, 400 * "7" + ",1,0"), r"infinite .* column 'a' \(row 3\)"),
    "twice": ("a.csv", b"a,b,a\n1,2,3\n2,3,4\n", "a.csv has 2 columns named 'a'"),
    "nameless": ("a.csv", b"a,,c\n1,2,3\n2,3,4\n", "column 2 of a.csv has no name"),
    "rubbish": ("a.csv", bytes(range(256)) * 9, "a.csv is not UTF-8 text"),
    "latin": ("a.csv", "h\u00f6he,b\n1,2\n3,4\n".encode("latin-1"), "not UTF-8 text: save it as"),
    "latin rows": ("a.csv", spoiled(3, "3,\u00e9,1").decode().encode("latin-1"), "not UTF-8 text"),
    "utf-16": ("a.csv", GOOD.encode("utf-16"), "not UTF-8 text"),
    "no gzip": ("a.csv.gz", GOOD.encode(), "a.csv.gz is not a gzip file"),
    "no parquet": ("a.parquet", GOOD.encode(), "a.parquet is not a Parquet file, wh"),
    "no npy": ("a.npy", GOOD.encode(), "a.npy is not a NumPy array"),
    "no npz": ("a.npz", GOOD.encode(), "a.npz is not an archive"),
    "empty npy": ("a.npy", b"", "a.npy is empty"),
    "ending": ("a.xlsx", b"PK", r"a.xlsx must end in one of .csv, .tsv, .*\.npz"),
}


@pytest.mark.parametrize(("name", "content", "match"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        read_recording(tmp_path / name, "y" if b"y" in content[:9] else None)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("row", ["3,1", "3,1,0,9"])
def test_uneven_rows_beside_the_chosen_columns(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_bytes(spoiled(3, row))
    with pytest.raises(DataError, match=r"row 3 of a.csv has . fields instead of 3"):
        read_recording(tmp_path / "a.csv", features="a,b")


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.9, 0.9999])
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.parquet", "a.csv.gz"])
def test_cut_files(tmp_path: Path, name: str, share: float) -> None:
    path = write(pd.concat([FRAME] * 40), tmp_path / name)
    content = path.read_bytes()
    path.write_bytes(content[: 1 + int(share * (len(content) - 2))])
    with pytest.raises(DataError, match=f"{name} seems to be cut or damaged: write or fetch"):
        read_recording(path)


def test_damaged_files(tmp_path: Path) -> None:
    path = write(pd.concat([FRAME] * 40), tmp_path / "a.csv.gz")
    content = bytearray(path.read_bytes())
    content[1000:1500] = RNG.bytes(500)
    path.write_bytes(content)
    with pytest.raises(DataError, match="seems to be cut or damaged"):
        read_recording(path)


def test_places(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*a.csv: check"):
        read_recording(tmp_path / "a.csv")
    with pytest.raises(DataError, match="is a folder: give a file"):
        read_recording(tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe.csv is a pipe or a device: save the data as"):
        read_recording(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match="name too long"):
        read_recording(300 * "a" + ".csv")


def test_missing_values_are_counted(tmp_path: Path, small_pieces: None) -> None:
    frame = FRAME.assign(trace=FRAME["trace"].mask(FRAME.index % 4 == 2))
    frame.loc[[21, 50], "pressure"] = np.nan  # first in the second piece
    frame.loc[3, "y"] = np.inf
    match = (
        r"^missing values in columns 'trace' \(rows 3, 7, 11 and 11 more\), "
        r"'pressure' \(rows 22, 51\): fill them, or leave these rows out with `drop_missing`$"
    )
    for source in (frame, write(frame, tmp_path / "a.csv"), write(frame, tmp_path / "a.parquet")):
        with pytest.raises(DataError, match=match):
            read_recording(source, "y")
    with pytest.raises(DataError, match=r"infinite values in column 'y' \(row 4\)"):
        read_recording(frame, "y", features="count")


DATED = FRAME.assign(when=DAYS.strftime("%Y-%m-%d"), city="Rome")
BAD_VALUES = {
    "text": (DATED.drop(columns="when"), "y", {}, "'city' is text: .* `features` pressure,trace,c"),
    "dates": (
        DATED.drop(columns="city"),
        "y",
        {},
        "'when' holds dates: leave it out .*, and sort the rows by 'when' with `order_by` when",
    ),
    "both": (DATED, "y", {}, "columns 'when', 'city' are not numbers: leave them out .* pressure,"),
    "one value": (
        DATED.assign(count=["n/a", *["3"] * (ROWS - 1)]),
        "y",
        {},
        r"are not numbers, and 'count' holds text in row 1 \('n/a'\): correct that or leave them",
    ),
    "two texts": (
        DATED[["when", "city"]],
        "city",
        {},
        "choose a column of numbers: there is none$",
    ),
    "only text": (DATED[["city", "y"]], "y", {}, "'city' is text: no column of numbers is left"),
    "text target": (
        DATED,
        "city",
        {"features": "y"},
        "'city' is text, .*least squares: .* `loss` logistic, .*: y",
    ),
    "constant": (FRAME.assign(count=3), "y", {}, "'count' is constant: leave it out, a bias is"),
    "rounding": (FRAME.assign(count=0.1 + 1e-17 * VALUES[:, 4]), "y", {}, "'count' is constant"),
    "constant target": (FRAME.assign(y=1.5), "y", {}, "the target 'y' is constant"),
    "target": (FRAME, "pressur", {}, "unknown target 'pressur', did you mean 'pressure'"),
    "target index": (VALUES, 5, {}, "unknown target '5'"),
    "target index below": (VALUES, -6, {}, "unknown target '-6'"),
    "many columns": (np.ones((3, 99)), "x", {}, r"unknown target 'x'.*\.\.\.\)"),
    "no name": (FRAME, True, {}, "target must be the name of a column, got True"),
    "features": (FRAME, "y", {"features": "count,opn"}, "unknown feature 'opn', did you mean 'op"),
    "feature twice": (FRAME, "y", {"features": "open,open"}, "feature 'open' is named twice"),
    "target as feature": (FRAME, "y", {"features": "open,y"}, "target 'y' is among the features"),
    "no features": (FRAME, "y", {"features": " ,"}, "no column of table is left as a feature"),
    "only target": (FRAME[["y"]], "y", {}, "no column of table is left as a feature"),
    "order_by": (FRAME, "y", {"order_by": "tme"}, "unknown order_by 'tme'"),
    "no order": (DATED, "y", {"features": "open", "order_by": "city"}, "'city' gives no order"),
    "order missing": (
        DATED.assign(when=DATED["when"].mask(DATED.index == 5)),
        "y",
        {"features": "open", "order_by": "when"},
        r"missing values in column 'when' \(row 6\)",
    ),
    "day or month": (
        FRAME.assign(when=["01/02/2020", "02/01/2020", *["03/03/2020"] * (ROWS - 2)]),
        "y",
        {"order_by": "when"},
        "'when' may have the day or the month first: write 2020-01-31",
    ),
    "bad date": (
        FRAME.assign(when=[*DAYS[:9].strftime("%Y-%m-%d"), "2020-13-45"] + ["2022-01-01"] * 47),
        "y",
        {"order_by": "when"},
        r"column 'when' holds no date in row 10 \('2020-13-45'\): correct it",
    ),
    "bad time": (
        FRAME.assign(when=[*map(str, range(100, 156)), "soon"]),
        "y",
        {"order_by": "when"},
        r"column 'when' holds no number in row 57 \('soon'\)",
    ),
    "horizon": (FRAME, "y", {"horizon": 57}, "horizon must be below the 57 rows of table, got 57"),
    "horizon 0": (FRAME, "y", {"horizon": 0}, "horizon must be at least 1"),
    "horizon of nothing": (FRAME, None, {"horizon": 1}, "a horizon needs the name of the column"),
    "horizon of values": (VALUES, np.ones(ROWS), {"horizon": 1}, "a horizon needs the name of the"),
    "horizon of series": (
        SERIES,
        "z",
        {"horizon": 5, "group_by": "where", "drop_missing": True},
        "horizon must be below the 5 rows of the longest series of table, got 5",
    ),
    "group_by": (FRAME, "y", {"group_by": "station"}, "unknown group_by 'station'"),
    "group by all": (FRAME, "y", {"group_by": "trace"}, "'trace' has 57 values in 57 rows, which"),
    "group by target": (FRAME, "y", {"group_by": "y"}, "the target 'y' cannot also say where"),
    "one key": (FRAME, "y", {"group_by": "open", "order_by": "open"}, "by the same column 'open'"),
    "all missing": (
        FRAME.assign(open=np.nan),
        "y",
        {"drop_missing": True},
        "every row of table has missing values: name columns that have fewer of them",
    ),
    "labels of nothing": (FRAME, None, {"labels": True}, "logistic loss needs a target: name a"),
    "many labels": (
        FRAME,
        "count",
        {"labels": True},
        r"'count' has more than 9 values \(.*\.\.\.\), and the",
    ),
    "three labels": (
        FRAME.assign(y=["a", "b", "c"] * 19),
        "y",
        {"labels": True},
        r"'y' has 3 values \(a, b, c\), and the logistic loss learns two: make it a column that",
    ),
    "one label": (FRAME.assign(y="a"), "y", {"labels": True}, "the target 'y' is constant"),
    "wide": (np.ones((2, 2001)), None, {}, "array has 2,001 columns to learn from, and at most 2,"),
    "duplicates": (
        FRAME.set_axis(["a", "b", "c", "d", "a"], axis=1),
        None,
        {},
        "2 columns named 'a'",
    ),
    "complex": (VALUES + 1j, None, {}, "the array holds complex numbers"),
    "complex column": (FRAME.assign(z=1j), "y", {}, "'z' holds complex numbers"),
    "complex objects": (FRAME.assign(z=[1j] * ROWS).astype(object), "y", {}, "'z' .* complex"),
    "lists": (FRAME.assign(z=[[1, 2]] * ROWS), "y", {}, "'z' holds values of type list"),
    "a feature": (FRAME, "y", {"features": 3.5}, "feature must be the name of a column, got 3.5"),
    "blanks": (DATED.rename(columns={"open": "is open"}), "y", {}, "`features` '.*,is open', and"),
    "axes": (VALUES[None], None, {}, "the array must be rows x columns, got 3 axes"),
    "number": (3.0, None, {}, "the array must be rows x columns, got 0 axes"),
    "ragged": ([[1.0, 2.0], [3.0]], None, {}, "the array must have rows of equal length"),
    "objects": (VALUES.astype(object), None, {}, "the array must hold numbers, got .* object"),
    "words": ([["a"], ["b"]], None, {}, "the array must hold numbers"),
    "nothing": (None, None, {}, "the array must hold numbers.*or the name of a file"),
    "no columns": (np.ones((5, 0)), None, {}, "no column of array is left"),
    "no rows": (np.ones((0, 3)), None, {}, "array has no rows of data"),
    "masked": (np.ma.masked_less(VALUES, -4.5), None, {}, r"missing values in column '2'"),
    "target length": (FRAME, np.ones(5), {}, "target has 5 values but table has 57 rows"),
    "target longer": (FRAME, np.ones(99), {}, "target has 99 values but table has 57 rows"),
    "target axes": (FRAME, VALUES, {}, "target must be one column of numbers, got 2 axes"),
    "target words": (FRAME, ["a", "b"], {}, "target has 2 values but table has 57 rows"),
    "target of text": (FRAME, ["a", "b", "c"] * 19, {}, "target 'target' is text, and the model"),
    "target of dates": (
        FRAME,
        pd.Series(DAYS, name="day"),
        {},
        "the target 'day' holds dates",
    ),
    "target of gaps": (FRAME, [None, *[1.0, 2.0] * 28], {}, r"missing .* 'target' \(row 1\)"),
    "target complex": (FRAME, VALUES[:, 4] + 1j, {}, "'target' holds complex numbers"),
    "target missing": (FRAME, [np.nan] * ROWS, {}, "column 'target' holds nothing: leave it out"),
    "memory": (FRAME, "y", {"memory": -1}, "memory must be at least 0"),
}


@pytest.mark.parametrize(
    ("source", "target", "options", "match"), BAD_VALUES.values(), ids=BAD_VALUES
)
@pytest.mark.usefixtures("small_pieces")
def test_bad_values(source: object, target: object, options: dict, match: str) -> None:
    with pytest.raises(ResonaxError, match=match) as caught:
        read_recording(source, target, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_python_objects(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VALUES.astype(object))
    np.savez(tmp_path / "a.npz", X=VALUES.astype(object))
    for name in ("a.npy", "a.npz"):
        with pytest.raises(DataError, match=f"{name} holds Python objects, which could run"):
            read_recording(tmp_path / name)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"a": VALUES, "b": VALUES}, "one table named X, .* it has a, b"),
        ({"X": VALUES, "x": VALUES}, "one table named X, .* it has X, x"),
        ({}, "it has no arrays"),
        ({"X": VALUES, "y": VALUES[1:, 0]}, "target has 56 values but a.npz has 57 rows"),
        ({"X": np.zeros(2**18)}, "a.npz unpacks to more than 200 times its size: save it as .npy"),
        ({"X": VALUES[None]}, "a.npz must be rows x columns, got 3 axes"),
    ],
)
def test_bad_npz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, np.ndarray], match: str
) -> None:
    monkeypatch.setattr(sources, "SMALL_ENOUGH", 2**20)
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=match):
        read_recording(tmp_path / "a.npz")


def test_an_archive_without_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(DataError, match=r"a.npz must hold one table .* it has no arrays"):
        read_recording(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("block", "count", "match"),
    [
        (b"0" * 2**20, 18, "a line of more than 16,777,216 characters: it is no table"),
        (b"\0" * 2**20, 18, "not UTF-8 text"),
        (b"0,1\n" * 2**18, 8, "unpacks to more than 200 times its size: unpack it first"),
    ],
)
def test_a_small_file_that_unpacks_to_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: bytes, count: int, match: str
) -> None:
    monkeypatch.setattr(delimited, "SMALL_ENOUGH", 2**24 if count > 16 else 2**21)
    with gzip.open(tmp_path / "a.csv.gz", "wb", 9) as file:
        for _ in range(count):
            file.write(block)
    with pytest.raises(DataError, match=match):
        read_recording(tmp_path / "a.csv.gz")


def test_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(FRAME, tmp_path / "a.parquet")
    usual = builtins.__import__

    def without(name: str, *args: object, **kwargs: object) -> object:
        if name.startswith("pyarrow"):
            raise ModuleNotFoundError(name=name)
        return usual(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArgumentError, match="Parquet files need pyarrow: pip install pyarrow"):
        read_recording(path, "y")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux")
@pytest.mark.usefixtures("small_pieces")
def test_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    gc.freeze()  # what was made before: it is not searched for garbage below
    recording = read_recording(FRAME, "y", memory=0)
    assert mapped() == 2  # the inputs and the target
    assert os.listdir(tmp_path) == []  # their files have no names, so a kill leaves nothing
    with contextlib.suppress(ResonaxError):
        read_recording(FRAME.assign(y=1), "y", memory=0)
    view = recording.inputs[3:]
    first = view.tolist()
    del recording
    gc.collect()
    assert mapped() == 1
    assert view.tolist() == first
    del view
    gc.collect()
    assert mapped() == 0
    assert os.listdir(tmp_path) == []


def test_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, data: object, /) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(DataError, match=r"cannot hold the data .No space.*: set TMPDIR"):
        read_recording(FRAME, "y", memory=0)


def test_read_only() -> None:
    for memory in (0, 2**28):
        recording = read_recording(FRAME, "y", memory=memory)
        with pytest.raises(ValueError, match="read-only"):
            recording.inputs[0, 0] = 1


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.csv", "a.csv.gz", "a.parquet"])
def test_a_damaged_file_is_read_or_refused_in_a_sentence(name, tmp_path):
    """Bytes changed at random, most of them where a file says what it holds."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    table = pd.DataFrame(X, columns=["x", "y"])
    {
        "a.npy": lambda path: np.save(path, X),
        "a.npz": lambda path: np.savez(path, X=X, y=X[:, 0]),
        "a.parquet": table.to_parquet,
    }.get(name, lambda path: table.to_csv(path, index=False))(tmp_path / name)
    whole, sentences = (tmp_path / name).read_bytes(), []
    for seed in range(80):
        rng, damaged = np.random.default_rng(seed), bytearray(whole)
        reach = min(120, len(whole)) if seed % 2 else len(whole)
        places = rng.integers(reach, size=rng.integers(1, 5))
        if name.endswith(("npz", "parquet")):  # these say at their end what they hold
            places = len(whole) - 1 - places
        for place in places:
            damaged[place] = rng.integers(256)
        (tmp_path / name).write_bytes(damaged)
        try:
            read_recording(tmp_path / name)
        except ResonaxError as error:
            sentences.append(str(error))
    assert len(sentences) > 8
    assert all(sentence.isprintable() for sentence in sentences)


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (20, 2",  # an open bracket
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (2000000000000, 2), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (20, -2), }",
        b"{'descr': 'O', 'fortran_order': False, 'shape': (20, 2), }",
        b"(" * 100,
    ],
)
def test_a_lying_header_of_numpy_is_told(header, tmp_path):
    rest = header.ljust(117) + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(rest).to_bytes(2, "little") + rest
    (tmp_path / "a.npy").write_bytes(content + np.ones(40).tobytes())
    with pytest.raises(
        DataError, match=r"a\.npy (seems to be cut or damaged|holds Python objects)"
    ):
        read_recording(tmp_path / "a.npy")


@pytest.mark.parametrize("word", ["1_000", "\u0661\u0662", "\uff11\uff12", "0x10", "1d5"])
def test_what_python_alone_takes_for_a_number_is_text(word, tmp_path):
    rows = "".join(f"{row % 7}.5,{row % 5}\n" for row in range(20))
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}{word},1\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"holds text in row 21 \\('{word}'\\)"):
        read_recording(tmp_path / "a.csv", "y")


@pytest.mark.parametrize("word", [" 1e3 ", "+1000", "1000.", ".1e4"])
def test_the_usual_ways_to_write_a_number_are_read(word, tmp_path):
    rows = "".join(f"{row % 7}.5,{row % 5}\n" for row in range(20))
    (tmp_path / "a.csv").write_text(f"x,y\n{rows}{word},1\n", encoding="utf-8")
    found = read_recording(tmp_path / "a.csv", "y", standardise=False)
    assert found.inputs[-1, 0] == 1000
