"""Results: labelled datasets on disk. They know no physics."""

from resonax.store.dataset import open_dataset, save_dataset
from resonax.store.disk import clear, locked
from resonax.store.files import check_folder, make_folder, replacing
from resonax.store.layout import Layout, Task, Variable
from resonax.store.place import Place, Remote, as_place
from resonax.store.store import Store, open_store

__all__ = [
    "Layout",
    "Place",
    "Remote",
    "Store",
    "Task",
    "Variable",
    "as_place",
    "check_folder",
    "clear",
    "locked",
    "make_folder",
    "open_dataset",
    "open_store",
    "replacing",
    "save_dataset",
]
