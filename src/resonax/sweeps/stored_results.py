"""What is stored of an experiment, for whoever draws it: it can be sent without the experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from resonax.store import Store

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["StoredResults"]


@dataclass(frozen=True)
class StoredResults:
    """A store, and the words of its panels in figures, where they are not their names."""

    store: Store
    labels: Mapping[str, str]

    def load(self, names: Iterable[str] | None = None, most: int | None = None) -> xr.Dataset:
        """Return what is stored, with the labels of its panels; it must be complete.

        ``names`` and ``most`` are those of `Store.load`: of many results, what is needed.
        """
        dataset = self.store.load(names, most)
        if self.labels:
            words = [self.labels.get(str(name), str(name)) for name in dataset.panel.values]
            dataset = dataset.assign_coords(label=("panel", words))
        return dataset
