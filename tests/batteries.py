"""What every result object must do, whatever it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

import resonax as rx
from resonax.core.objects import Result


def pass_battery(result: Result, folder: Path) -> None:
    """Assert that a result is short, plain, and the same after it was saved and loaded."""
    name, shown, words = type(result).__name__, repr(result), str(result).partition("\n")[0]
    assert shown.startswith(f"{name}(")
    assert shown.endswith(")")
    assert len(shown.splitlines()) <= 6
    assert max(map(len, shown.splitlines())) <= 88
    assert "array(" not in shown
    assert 10 < len(words) < 200
    html = result._repr_html_()
    assert name in html
    assert html.count("<tr>") == len(result.summary()) > 1
    plain = result.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain

    is_map = name == "StabilityMap"
    again = rx.load(result.save(folder / f"result{'.nc' if is_map else '.json'}"))
    if is_map:
        assert again.identical(result._dataset)
        again = again.resonax
    else:
        same(result, again)
    assert repr(again) == repr(result)
    assert again.to_dict() == plain
    before, after = drawn(result.plot()), drawn(again.plot())
    assert len(before) == len(after) > 3
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def same(one: Any, other: Any) -> None:
    """Assert that two values are equal to the last bit, and of the same types."""
    assert type(one) is type(other)
    if is_dataclass(one):
        for field in fields(one):
            same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, xr.Dataset):
        xr.testing.assert_identical(one, other)
        assert all(one[name].dtype == other[name].dtype for name in one.variables)
    elif isinstance(one, tuple):
        for left, right in zip(one, other, strict=True):
            same(left, right)
    else:
        assert one == other or one != one  # nan


def drawn(figure: Figure) -> list[Any]:
    """All that a figure shows, as numbers and words."""

    def parts(artist: Artist) -> Iterator[Any]:
        if isinstance(artist, Line2D):
            yield artist.get_xydata()
        elif isinstance(artist, Text):
            yield artist.get_text()
        elif isinstance(artist, Collection):
            yield artist.get_array()
            yield artist.get_offsets()
        for child in artist.get_children():
            yield from parts(child)

    return list(parts(figure))
