"""Put what the benchmarks of the guard learn from into one file, for a machine without packages.

Run: python benchmarks/guard_data.py FILE.npz

The file holds the digits of scikit-learn, four kinds of text that come with Python (topics of its
reference, its source, tables of its encodings, names of Unicode), and the recordings of
`tests/recordings.py`. Other benchmarks read it where RESONAX_GUARD_DATA names it, and otherwise
make what they need from the packages.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import numpy as np

KINDS = 4
LENGTH = 20_000  # bytes of each kind of text


def digits() -> dict[str, np.ndarray]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return {
        "digits": np.asarray(rows).astype(np.uint8),
        "labels": np.asarray(labels).astype(np.uint8),
    }


def text() -> dict[str, np.ndarray]:
    """Return bytes of each kind, (kinds, length)."""
    import argparse
    import encodings
    import inspect
    import pydoc_data.topics
    import unicodedata

    folder = Path(encodings.__file__).parent
    tables = [path.read_text() for path in sorted(folder.glob("cp*.py"))]
    names = [unicodedata.name(chr(code), "") for code in range(0x100, 0x2000)]
    kinds = (
        "\n".join(pydoc_data.topics.topics[key] for key in sorted(pydoc_data.topics.topics)),
        inspect.getsource(argparse),
        "\n".join(tables),
        "\n".join(name for name in names if name),
    )
    whole = [np.frombuffer(kind.encode("ascii", "replace"), np.uint8) for kind in kinds]
    return {"text": np.stack([one[:LENGTH] for one in whole])}


def recordings() -> dict[str, np.ndarray]:
    """Return inputs of each recording with the target as the last column."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from recordings import RECORDINGS

    made = {name: make() for name, make in RECORDINGS.items()}
    return {f"recording {name}": np.column_stack(both) for name, both in made.items()}


@functools.cache
def stored() -> dict[str, np.ndarray]:
    """Return what the file of RESONAX_GUARD_DATA holds; nothing if it is not named."""
    path = os.environ.get("RESONAX_GUARD_DATA")
    return dict(np.load(path)) if path else {}


def main() -> None:
    whole = digits() | text() | recordings()
    np.savez_compressed(sys.argv[1], **{key: whole[key] for key in sorted(whole)})  # pyrefly: ignore[bad-argument-type]
    print(f"{Path(sys.argv[1]).stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
