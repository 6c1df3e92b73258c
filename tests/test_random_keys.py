"""Which cell gets which random numbers: distinct for all, and those of stores made before."""

from __future__ import annotations

from hashlib import sha256

import jax
import numpy as np
import pytest

from resonax.core.keys import seed_key, split_keys
from resonax.simulation.random_numbers import path_keys
from resonax.sweeps.sweep import cell_labels


def digest(seed: int, labels, runs: int) -> str:
    return sha256(np.asarray(path_keys(seed, np.asarray(labels), runs)).tobytes()).hexdigest()[:16]


# Made before labels and seeds had 64 bits: stores of then are continued with the same numbers.
@pytest.mark.parametrize(
    ("seed", "labels", "runs", "expected"),
    [
        (0, range(5), 3, "568eb84a6797c535"),
        (2**40 + 3, [0, 2**20 + 7, 255 * 2**24 + 4095 * 2**12 + 4095], 2, "dbfa9c24ad598fe8"),
    ],
)
def test_keys_are_those_of_old_stores(seed, labels, runs, expected):
    assert digest(seed, list(labels), runs) == expected


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3, 2**63 - 1, np.int32(3), np.uint64(2**50)])
def test_keys_of_keys_are_those_of_jax(seed):
    with jax.enable_x64(True):
        theirs = jax.vmap(lambda key: jax.random.split(key, 3))(
            jax.random.split(jax.random.key(seed), 4)
        )
        expected = np.asarray(jax.random.key_data(theirs))
    np.testing.assert_array_equal(split_keys(split_keys(seed_key(seed), 4), 3), expected)


def test_a_seed_may_be_an_integer_of_numpy():
    own, plain = (path_keys(seed, np.array([5]), 2) for seed in (np.int32(3), 3))
    np.testing.assert_array_equal(own, plain)


@pytest.mark.parametrize("panel", [0, 1, 255])
def test_labels_are_those_of_old_stores(panel):
    columns = np.array([0, 1, 17, 4095])
    shared = cell_labels(panel, 3, columns, share=True)
    assert shared.tolist() == [panel * 2**20 + column for column in columns]
    alone = cell_labels(panel, 4096, columns, share=False)
    assert alone.tolist() == [
        panel * 2**24 + row * 2**12 + column for row in range(4096) for column in columns
    ]


def test_no_two_cells_have_one_label():
    long = np.array([0, 1, 4095, 4096, 4097, 8191, 8192, 99_999])
    for share, rows in ((False, 4100), (True, 1)):
        labels = [cell_labels(panel, rows, long, share=share) for panel in (0, 1, 255, 256, 4096)]
        together = np.concatenate(labels)
        assert len(np.unique(together)) == len(together)
        assert together.min() >= 0


def test_keys_depend_on_every_bit_of_label_and_seed():
    labels = [0, 1, 2**12, 2**31, 2**32, 2**32 + 1, 2**33, 2**52]
    keys = np.asarray(path_keys(5, np.array(labels), 3))
    assert len(np.unique(keys, axis=0)) == len(keys)
    seeds = [0, 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1]
    assert len({digest(seed, [0], 2) for seed in seeds}) == len(seeds)
