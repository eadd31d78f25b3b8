"""The journal and the stores of a data directory: one way to open them, for all readers and writers.

Promises that no process opens the journal of an application with code that declares a stored class
differently.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

from penstock.journal.api import Journal
from penstock.journal.delta import DeltaJournal, app_of
from penstock.model.application import App
from penstock.process.boot import boot_id
from penstock.snapshots.snapshot import FOLDER as SNAPSHOTS
from penstock.state.stores import Stores

JOURNAL: Final = "journal"


def open_journal(data: Path, app: App, secret: bytes | None = None) -> DeltaJournal:
    """Open an application's journal, which is created if it is not there.

    Raises:
        ClassChanged: A stored entity class is declared differently; nothing was written.
        ConfigError: The journal is another application's, or of an earlier Penstock.
        Corrupt: It is damaged.
        JournalUnavailable: It cannot be created or read.
    """
    return DeltaJournal(data / JOURNAL, app.name, app.shapes, secret)


def check_data(data: Path, app: App) -> None:
    """Refuse an application that a data directory does not fit; raises as `open_journal`.

    For a process that writes something, or starts a process that does, before it opens the journal.
    Nothing is created.
    """
    if app_of(data / JOURNAL) is not None:
        with closing(open_journal(data, app)):
            pass


def open_stores(data: Path, journal: Journal, partitions: int) -> Stores:
    """Name the stores in a data directory, which its journal and its snapshots feed."""
    return Stores(
        data / "state", journal, partitions, boot_id=boot_id(), snapshots=data / SNAPSHOTS
    )
