"""The stores of a data directory: one way to open them, for all who read or feed them."""

from pathlib import Path

from penstock.journal.api import Journal
from penstock.runtime.boot import boot_id
from penstock.state.snapshot import FOLDER as SNAPSHOTS
from penstock.state.stores import Stores


def open_stores(data: Path, journal: Journal, partitions: int) -> Stores:
    """Name the stores in a data directory, which its journal and its snapshots feed."""
    return Stores(
        data / "state", journal, partitions, boot_id=boot_id(), snapshots=data / SNAPSHOTS
    )
