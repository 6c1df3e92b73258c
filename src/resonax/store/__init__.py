"""Results: labelled datasets on disk. They know no physics."""

from resonax.store.files import check_folder, is_running, locked, remove_leftovers
from resonax.store.layout import TASKS, Layout, Task, Variable
from resonax.store.locations import (
    Location,
    Remote,
    as_location,
    check_reachable,
    file_names,
    make_folder,
    read_files,
    remove,
    replacing,
    write_files,
)
from resonax.store.metadata import StoreMetadata, read_metadata
from resonax.store.store import Store, open_store

__all__ = [
    "TASKS",
    "Layout",
    "Location",
    "Remote",
    "Store",
    "StoreMetadata",
    "Task",
    "Variable",
    "as_location",
    "check_folder",
    "check_reachable",
    "file_names",
    "is_running",
    "locked",
    "make_folder",
    "open_store",
    "read_files",
    "read_metadata",
    "remove",
    "remove_leftovers",
    "replacing",
    "write_files",
]
