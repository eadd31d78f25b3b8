"""The names of the files and folders in a data directory, and in a directory of backups."""

from typing import Final

JOURNAL: Final = "journal"
LOG: Final = "log.sqlite"
KEYS: Final = "keys.json"
PAUSES: Final = "pauses.json"
SAVEPOINTS: Final = "savepoints"
SNAPSHOTS: Final = "snapshots"
STATE: Final = "state"
CHECKPOINT: Final = "checkpoint"
"""The folder of Spark's checkpoint."""
RUN: Final = "run"
"""The folder of files that only running processes need."""
DRIVER_LOCK: Final = "driver.lock"
BACKUPS: Final = "backups"
"""The folder of manifests in a directory of backups."""
