"""The names of the files and folders in a data directory, and in a directory of backups.

docs/decisions/060-shared-root.md says which of them belong to the shared root, and which to the root of a host.
"""

from typing import Final

JOURNAL: Final = "journal"
LOG: Final = "log.sqlite"
KEYS: Final = "keys.json"
SUBJECT_KEYS: Final = "subjects.keys"
"""The file with the keys of personal data; no backup contains it."""
ERASURES: Final = "erasures.json"
"""The certificates of erasures, which destroy the keys of an older file of keys; backups contain them."""
PAUSES: Final = "pauses.json"
HELD: Final = "held.json"
"""The file that keeps the views of a copied directory from being written."""
SAVEPOINTS: Final = "savepoints"
SNAPSHOTS: Final = "snapshots"
STATE: Final = "state"
CHECKPOINT: Final = "checkpoint"
"""The folder of Spark's checkpoint."""
VIEWS: Final = "views"
"""The folder with a folder for each view; no backup contains it."""
RUN: Final = "run"
"""The folder of files that only running processes need."""
ARCHIVES: Final = "archives"
"""The folder of source archives: the code of each deployment."""
SHARED_ROOT: Final = "shared-root.json"
"""The file that names the object store of the shared root, if that is not the directory itself."""
DRIVER_LOCK: Final = "driver.lock"
BACKUPS: Final = "backups"
"""The folder of manifests in a directory of backups."""
