"""Which cell gets which random numbers: distinct for all."""

from __future__ import annotations

from hashlib import sha256

import jax
import numpy as np
import pytest

from resonax.simulation.random_numbers import path_keys
from resonax.sweeps.sweep import cell_labels


def words(keys):
    return np.asarray(jax.random.key_data(keys))


def digest(seed: int, labels, runs: int) -> str:
    return sha256(words(path_keys(seed, np.asarray(labels), runs)).tobytes()).hexdigest()[:16]


def test_a_seed_may_be_an_integer_of_numpy():
    own, plain = (words(path_keys(seed, np.array([5]), 2)) for seed in (np.int32(3), 3))
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
    keys = words(path_keys(5, np.array(labels), 3))
    assert len(np.unique(keys, axis=0)) == len(keys)
    seeds = [0, 1, 2**32, 2**53, 2**53 + 1, 2**63 - 1]
    assert len({digest(seed, [0], 2) for seed in seeds}) == len(seeds)
