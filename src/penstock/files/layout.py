"""The names of the files and folders in a data directory, and in a directory of backups.

docs/decisions/060-shared-root.md says which of them belong to the shared root, and which to the root of a host.
"""

from typing import Final

JOURNAL: Final = "journal"
LOG: Final = "log.sqlite"
"""The embedded log, or a host's copy of a log in Kafka."""
LOG_NOTE: Final = "log.json"
"""The note of the topic in which the log is; no backup contains it."""
LOG_COPIES: Final = "log"
"""The folder of copies of a log in Kafka, from which a new host begins."""
LOG_HOST: Final = "log-host.json"
"""The file that says which host has the embedded log, if the shared root is in an object store."""
KEYS: Final = "keys.json"
SUBJECT_KEYS: Final = "subjects.keys"
"""The file with the keys of personal data; no backup contains it."""
ERASURES: Final = "erasures.json"
"""The certificates of erasures, which destroy the keys of an older file of keys; backups contain them."""
PAUSES: Final = "pauses.json"
HELD: Final = "held.json"
"""The file that keeps the views of a copied directory from being written."""
LINEAGE: Final = "lineage"
"""The file that a fork has, and its backups: it makes the ids of its effects others than those of the original."""
SAVEPOINTS: Final = "savepoints"
SNAPSHOTS: Final = "snapshots"
STATE: Final = "state"
HELD_STATE: Final = "held"
"""The folder of the stores of a host that holds a part of the state; see `state.placement`."""
PLACEMENT: Final = "placement.json"
"""The name in the shared root that says which hosts hold parts of the state."""
CHECKPOINT: Final = "checkpoint"
"""The folder of Spark's checkpoint."""
VIEWS: Final = "views"
"""The folder with a folder for each view; no backup contains it."""
CAPTURES: Final = "captures"
"""The folder with a folder for each stream of the changes of a database; no backup contains it."""
SCRATCH: Final = "scratch"
"""The folder of files that only one epoch needs: of a host, and in an object store, where tasks of several hosts hand them on."""
RUN: Final = "run"
"""The folder of files that only running processes need."""
LEASES: Final = "leases"
"""The folder of the leases of readers of all hosts, in an object store."""
ARCHIVES: Final = "archives"
"""The folder of source archives: the code of each deployment."""
IMPORTS: Final = "imports"
"""The folder of the rows of imports that wait in the log."""
TICKS: Final = "ticks.json"
"""The file that says how far each schedule has come."""
SHARED_ROOT: Final = "shared-root.json"
"""The file that names the object store of the shared root, if that is not the directory itself."""
PROBE: Final = "_probe"
"""The folder in an object store for names that only try what the store does."""
UNFINISHED: Final = "unfinished.json"
"""The name that a copy of an application has in an object store until it is whole."""
SHARED: Final = (
    JOURNAL,
    SNAPSHOTS,
    ARCHIVES,
    IMPORTS,
    SAVEPOINTS,
    PAUSES,
    TICKS,
    KEYS,
    ERASURES,
    HELD,
    LINEAGE,
)
"""The names of a copied application that belong to the shared root."""
DRIVER_LOCK: Final = "driver.lock"
LEASE: Final = "lease.json"
"""The object of a shared root in a store that its driver changes again and again."""
HOST_ID: Final = "host.id"
"""The file with the id of a host folder."""
HOSTS: Final = "hosts"
"""The folder in an object store in which each running host says how it stands."""
SUPERVISOR_LOCK: Final = "supervisor.lock"
BACKUPS: Final = "backups"
"""The folder of manifests in a directory of backups."""
