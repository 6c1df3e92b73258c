"""What people hold: frames, tensors, datasets and loaders give the verdict of the array."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
)

from commands import run_python
from resonax import check
from resonax.core.errors import ArgumentError, DataError, ResonaxError
from resonax.recordings.recording import read_recording

ROWS = 640
HOURS = np.arange(ROWS)
RNG = np.random.default_rng(0)
WAVE = 1.2 * np.sin(2 * np.pi * HOURS / 24) + 0.3 * RNG.normal(size=ROWS)
VALUES = np.column_stack([WAVE, RNG.normal(size=ROWS), WAVE + 0.1 * RNG.normal(size=ROWS)])
VALUES = VALUES.astype(np.float32)  # which all libraries hold alike
X, Y = VALUES[:, :2], VALUES[:, 2]
NAMES = ["temp", "wind", "later"]
FRAME = pd.DataFrame(VALUES, columns=NAMES)
POLARS = pl.DataFrame(VALUES, schema=NAMES)
DAYS = [datetime.date(2020, 1, 1) + datetime.timedelta(days) for days in range(ROWS)]


class Rows(Dataset):
    """A map-style dataset of anything."""

    def __init__(self, row: Callable[[int], Any], count: int = ROWS):
        self.row, self.count = row, count

    def __getitem__(self, index: int) -> Any:
        return self.row(index)

    def __len__(self) -> int:
        return self.count


class Endless(IterableDataset):
    def __iter__(self):
        for number in itertools.count():
            yield X[number % ROWS], Y[number % ROWS]


PAIRS = TensorDataset(torch.tensor(X), torch.tensor(Y))
NAMED = Rows(lambda row: dict(zip(NAMES, VALUES[row], strict=True)))
SOURCES: dict[str, tuple[Any, Any]] = {
    "pandas": (FRAME, "later"),
    "pandas, beside": (FRAME[NAMES[:2]], FRAME["later"]),
    "pandas, another index": (FRAME[NAMES[:2]].set_index(HOURS[::-1]), FRAME["later"]),
    "polars": (POLARS, "later"),
    "polars, beside": (POLARS.select(NAMES[:2]), POLARS["later"]),
    "pyarrow": (pa.Table.from_pandas(FRAME), "later"),
    "pyarrow, beside": (
        pa.Table.from_pandas(FRAME[NAMES[:2]]),
        pa.Table.from_pandas(FRAME[["later"]]),
    ),
    "jax": (jnp.asarray(X), jnp.asarray(Y)),
    "tensors": (torch.tensor(X), torch.tensor(Y)),
    "tensors with gradients": (
        torch.tensor(X, requires_grad=True),
        torch.tensor(Y, requires_grad=True),
    ),
    "list of tensors": ([torch.tensor(row, requires_grad=True) for row in X], Y),
    "sparse tensor": (torch.tensor(X).to_sparse(), Y),
    "tensor dataset": (PAIRS, None),
    "dataset of arrays": (Rows(lambda row: (X[row], Y[row])), None),
    "dataset of lists": (Rows(lambda row: (X[row].tolist(), float(Y[row]))), None),
    "dataset of columns": (NAMED, "later"),
    "subset": (Subset(TensorDataset(*(t.repeat_interleave(2, 0) for t in PAIRS[:])),
                      range(0, 2 * ROWS, 2)), None),
    "loader": (DataLoader(PAIRS, batch_size=1), None),
    "loader of columns": (DataLoader(NAMED, batch_size=1), "later"),
}  # fmt: skip


@pytest.fixture(scope="module")
def judged():
    return check(X, Y, lr=0.01, momentum=0.95, batch=1, grid=2)


@pytest.mark.parametrize("name", SOURCES)
def test_each_source_gives_the_rows_of_the_array(name):
    source, target = SOURCES[name]
    wanted, found = read_recording(X, Y), read_recording(source, target)
    assert np.array_equal(found.inputs, wanted.inputs)
    assert np.array_equal(found.target, wanted.target)
    named = isinstance(target, str) or hasattr(source, "columns")
    assert found.names == (("temp", "wind") if named else ("0", "1"))
    assert found.target_name == ("later" if named else "target")


@pytest.mark.parametrize("name", ["pandas", "polars, beside", "tensor dataset", "loader"])
def test_each_source_gives_the_verdict_of_the_array(name, judged):
    source, target = SOURCES[name]
    found = check(source, target, lr=0.01, momentum=0.95, batch=1, grid=2)
    assert judged.verdict == "diverges"
    assert (found.verdict, found.cause, found.rate) == (judged.verdict, judged.cause, judged.rate)


def test_the_batch_of_a_loader_is_that_of_the_check_unless_one_is_given(judged):
    loader = DataLoader(PAIRS, batch_size=8)
    wanted = check(X, Y, lr=0.01, momentum=0.95, batch=8, grid=2)
    found = check(loader, lr=0.01, momentum=0.95, grid=2)
    assert (found.rate, found.verdict) == (wanted.rate, "converges")
    assert "8 rows per step" in found.model
    assert not found.question
    given = check(loader, lr=0.01, momentum=0.95, batch=1, grid=2)
    assert (given.rate, given.verdict) == (judged.rate, judged.verdict)
    kept = check(read_recording(loader), lr=0.01, momentum=0.95, grid=2)
    assert kept.rate == wanted.rate


def test_a_loader_is_read_as_it_gives_its_rows():
    def doubled(samples):
        inputs, targets = torch.utils.data.default_collate(samples)
        return 2 * inputs, targets

    loader = DataLoader(PAIRS, batch_size=100, collate_fn=doubled, drop_last=True, num_workers=2)
    found = read_recording(loader, standardise=False)
    assert np.array_equal(found.inputs, 2 * X[:600])
    assert np.array_equal(found.target, Y[:600])


def test_reading_leaves_the_random_numbers_of_torch_as_they_are():
    generator = torch.Generator().manual_seed(3)
    noisy = Rows(lambda row: (torch.tensor(X[row]) + torch.randn(2), float(Y[row])))
    states = torch.get_rng_state(), generator.get_state()
    read_recording(noisy)
    read_recording(DataLoader(noisy, batch_size=8, generator=generator))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert torch.equal(generator.get_state(), states[1])


def test_short_floats_are_read():
    short = np.round(4 * VALUES) / 4  # which eight bits hold exactly
    wanted = read_recording(short, 2).inputs
    for source in (jnp.asarray(short, jnp.bfloat16), torch.tensor(short).bfloat16()):
        assert np.array_equal(read_recording(source, 2).inputs, wanted)


@pytest.mark.parametrize("kind", ["pandas", "polars", "dataset"])
def test_two_classes_beside_the_table(kind):
    words = np.where(WAVE > 0, "warm", "cold")
    source, target = {
        "pandas": (FRAME[NAMES[:2]], pd.Series(words)),
        "polars": (POLARS.select(NAMES[:2]), pl.Series(words)),
        "dataset": (Rows(lambda row: (X[row], str(words[row]))), None),
    }[kind]
    found = read_recording(source, target, labels=True)
    assert found.classes == ("cold", "warm")
    assert np.array_equal(found.target, WAVE > 0)


GAPS = pl.Series([None if row in (3, 9) else float(row % 7) for row in range(ROWS)])
COLUMNS = {
    "text": (
        pl.Series(["Rome", "Oslo"] * 320),
        "'extra' is text: leave it out with",
    ),
    "categories": (
        pl.Series(["Rome", "Oslo"] * 320, dtype=pl.Categorical),
        "'extra' is text: leave it out with",
    ),
    "dates": (pl.Series(DAYS), "'extra' holds dates: leave it .* with `order_by` extra"),
    "missing": (
        GAPS,
        r"missing values in column 'extra' \(rows 4, 10\): fill them, or",
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_are_no_numbers_get_the_sentence_of_files(name, tmp_path):
    column, match = COLUMNS[name]
    frame = POLARS.with_columns(extra=column)
    path = tmp_path / "a.csv"
    frame.write_csv(path)
    for source in (frame, path, frame.to_arrow()):
        with pytest.raises(DataError, match=match):
            read_recording(source, "later")


def test_columns_of_truth_values_and_gaps_of_polars_are_used():
    is_warm = pl.Series([None if row == 3 else bool(row % 3) for row in range(ROWS)])
    frame = POLARS.with_columns(warm=is_warm, when=pl.Series(DAYS[::-1]))
    found = read_recording(
        frame, "later", order_by="when", drop_missing=True, standardise=False, features="warm"
    )
    wanted = [float(row % 3 > 0) for row in range(ROWS)[::-1] if row != 3]
    assert found.inputs.ravel().tolist() == wanted
    assert "1 of 640 rows were left out for missing values" in found.notes


class Own(DataLoader):
    def __iter__(self):
        return reversed(list(super().__iter__()))


LINES = {
    "shuffled": DataLoader(PAIRS, batch_size=8, shuffle=True),
    "own sampler": DataLoader(PAIRS, batch_size=8, sampler=list(range(ROWS))[::-1]),
    "own batches": DataLoader(PAIRS, batch_sampler=BatchSampler(range(ROWS), 8, False)),
    "own iteration": Own(PAIRS, batch_size=8),
    "endless loader": DataLoader(Endless(), batch_size=8),
    "endless": Endless(),
}


@pytest.mark.parametrize("name", LINES)
def test_loaders_without_one_order_are_refused_with_the_line_that_converts(name):
    source = LINES[name]
    with pytest.raises(ArgumentError) as caught:
        read_recording(source)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert ("resonax.torch.audit" in sentence) == isinstance(source, DataLoader)
    line = re.search(r"X, y = .*\)\)+(?=,)", sentence)
    assert line is not None
    names = {"np": np, "torch": torch, "itertools": itertools, "dataset": source, "loader": source}
    exec(line.group(), names)  # the line does what it says
    found = read_recording(names["X"], names["y"], standardise=False)
    assert set(map(tuple, found.inputs.tolist())) == set(map(tuple, X.tolist()))


class NoLength(Dataset):
    def __getitem__(self, index: int) -> float:
        return float(index)


BAD = {
    "lazy": (POLARS.lazy(), {}, r"LazyFrame has no rows yet: give frame.collect\(\)"),
    "dictionary": ({"a": [1.0, 2.0]}, {}, r"dictionary is not a table: .*pandas.DataFrame\(data\)"),
    "splits": ({"train": FRAME, "test": POLARS}, {}, r"choose one, data\['train'\]"),
    "images": (Rows(lambda _: (np.zeros((1, 8, 8)), 0)), {}, "got 1 x 8 x 8: flatten it"),
    "three parts": (Rows(lambda _: (1.0, 2.0, 3.0)), {}, "got 3 parts: name the columns, by a d"),
    "nothing": (Rows(lambda _: None), {}, "cannot be put together: each must hold as many"),
    "ragged": (Rows(lambda row: np.zeros(1 + row)), {}, "cannot be put together: each must hold"),
    "other columns": (
        DataLoader(Rows(lambda row: {"ab"[row // 8]: 1.0}, 16), batch_size=8),
        {},
        "each row of the loader must have the same columns",
    ),
    "empty": (Rows(lambda _: 1.0, 0), {}, "dataset has no rows of data"),
    "no length": (NoLength(), {}, "does not say how many rows it has: give .* a method __len__"),
    "wide": (Rows(lambda _: np.zeros(2001)), {}, "dataset has 2,001 columns to learn from"),
    "text": (Rows(lambda row: {"a": X[row, 0], "b": "x"}), {}, "column 'b' is text: leave it out"),
    "gap": (Rows(lambda row: (X[row], np.nan if row == 3 else 1.0)), {}, r"'target' \(row 4\)"),
    "unknown": (POLARS, {"target": "latter"}, "unknown target 'latter', did you mean 'later'"),
    "meta": (torch.empty(5, 2, device="meta"), {}, "the array must have rows of equal length"),
}


@pytest.mark.parametrize(("source", "options", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_used_is_refused_in_a_sentence(source, options, match):
    with pytest.raises(ResonaxError, match=match) as caught:
        read_recording(source, **options)
    assert "\n" not in str(caught.value)


def test_datasets_of_hugging_face():
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_pandas(FRAME)
    wanted = read_recording(X, Y)
    loader = DataLoader(data.with_format("torch"), batch_size=8)
    for source in (data, data.with_format("torch"), loader):
        found = read_recording(source, "later")
        assert found.names == ("temp", "wind")
        assert np.array_equal(found.inputs, wanted.inputs)
    backwards = data.select(range(ROWS)[::-1])
    assert np.array_equal(read_recording(backwards, "later").inputs, wanted.inputs[::-1])
    with pytest.raises(ArgumentError, match=r"choose one, data\['train'\]"):
        read_recording(datasets.DatasetDict({"train": data}))
    with pytest.raises(ArgumentError, match="IterableDataset may have no end"):
        read_recording(data.to_iterable_dataset())


def test_other_libraries_are_not_imported():
    code = (
        "import sys, numpy, pandas\n"
        "from resonax.recordings.recording import read_recording\n"
        "read_recording(pandas.DataFrame({'a': [1.0, 2.0, 4.0]}))\n"
        "read_recording(numpy.eye(3))\n"
        "print({'torch', 'polars', 'datasets'} & set(sys.modules))"
    )
    assert run_python(code).stdout.strip() == "set()"
