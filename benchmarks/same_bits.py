"""Compare the numbers of two folders of results, bit for bit.

Two versions of resonax are to give the same results from the same specification. Make a folder with
each, and compare them:

    resonax reproduce --out before        # with the version before
    resonax reproduce --out after         # with this one
    python benchmarks/same_bits.py before after

All arrays and coordinates of all stores are compared by shape, type and bytes, so that nan and -0.0
count. Names that are in one folder only are said as well. The exit status is 1 if anything that
both have differs, or if the second folder lacks something. How the numbers are laid out on disk may
differ: stores are read by zarr alone, whatever version of resonax wrote them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zarr


def arrays(store: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a store by name; words as text of their own length."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of types of text
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        found = {name: np.asarray(array[...]) for name, array in group.arrays()}
    return {
        name: values if values.dtype.kind in "iufb" else np.array(values.tolist(), str)
        for name, values in found.items()
    }


def differences(before: Path, after: Path) -> Iterator[tuple[bool, str]]:
    """Give what differs: whether it counts, and in words."""
    stores = [{path.name: path for path in folder.rglob("*.zarr")} for folder in (before, after)]
    for name in sorted(stores[0].keys() | stores[1].keys()):
        if name not in stores[0] or name not in stores[1]:
            yield (
                name not in stores[1],
                f"{name}: only {'after' if name in stores[1] else 'before'}",
            )
            continue
        old, new = (arrays(side[name]) for side in stores)
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                where = "after" if key in new else "before"
                yield key not in new, f"{name}/{key}: only {where}"
            elif (old[key].shape, old[key].dtype) != (new[key].shape, new[key].dtype):
                yield True, f"{name}/{key}: {old[key].shape} {old[key].dtype}, then not"
            elif old[key].tobytes() != new[key].tobytes():
                yield True, f"{name}/{key}: other bits"
    shared = stores[0].keys() & stores[1].keys()
    yield False, f"{len(shared)} stores compared"


def main() -> None:
    found = list(differences(*map(Path, sys.argv[1:3])))
    for _, words in found:
        print(words)
    sys.exit(any(counts for counts, _ in found))


if __name__ == "__main__":
    main()
