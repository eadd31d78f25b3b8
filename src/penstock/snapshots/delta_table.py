"""Snapshots as Delta tables, for other engines; written by delta-rs.

A new version of a table lists exactly the files of a snapshot, and is durable. The tables are derived
from the snapshots' manifests, so a table that cannot be read, or that shows other files, is created again. In an object
store, a version is created by a conditional put.
"""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from penstock.base.cause import cause_text
from penstock.base.ids import Epoch
from penstock.files.shared_root import SharedRoot
from penstock.snapshots.snapshot import SnapshotFile

LOG_FOLDER: Final = "_delta_log"
"""The folder of a table that Delta readers read first."""

_EPOCH: Final = "penstock.epoch"
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 days",  # the files of older versions are gone sooner
}

_LISTED: Final = ("path", "size_bytes", "num_records")


class TableContent(NamedTuple):
    """The table of one class in a snapshot.

    Attributes:
        root: The root of its folder, which has its name.
    """

    name: str
    root: SharedRoot
    schema: pa.Schema
    files: Sequence[SnapshotFile]

    @property
    def exists(self) -> bool:
        """Whether Delta readers see a table."""
        return any(True for _ in self.root.names(LOG_FOLDER))

    def difference(self, epoch: Epoch) -> str | None:
        """Return the difference between the snapshot of an epoch and the table of a Delta reader; None if they agree."""
        try:
            table = _opened(self.root)
            seen, schema = _files_in(table), table.schema()
        except (DeltaError, OSError) as error:
            return f"Delta readers cannot open it: {cause_text(error)}"
        wanted = sorted(((_name_of(file), file.size, file.rows) for file in self.files), key=str)
        if seen != wanted:
            shown, held = (sum(count or 0 for *_, count in files) for files in (seen, wanted))
            return (
                f"Delta readers see {len(seen)} files with {shown:,} rows, and the snapshot of epoch {epoch} has "
                f"{len(wanted)} with {held:,}"
            )
        is_same = schema == Schema.from_arrow(self.schema)
        return None if is_same else "Delta readers see other columns than its files have"

    def is_ahead(self, epoch: Epoch) -> bool:
        """Say whether Delta readers see a whole newer version: its snapshot is written now, or its writer has died."""
        try:
            table = _opened(self.root)
            newer = int(table.history(1)[0][_EPOCH])
            sizes = [self.root.size(name) == size for name, size, _ in _files_in(table)]
        except (DeltaError, OSError, LookupError, ValueError):
            return False
        is_own = all(name.startswith(f"{newer:012}-") for name, *_ in _files_in(table))
        return newer > epoch and is_own and all(sizes)


def _files_in(table: DeltaTable) -> list[tuple[str, int, int | None]]:
    """Return name, size and rows of each file of a table, in order; a file may stand in it twice."""
    actions = pa.table(table.get_add_actions(flatten=True)).select(_LISTED)
    return sorted((tuple(row.values()) for row in actions.to_pylist()), key=str)


def publish_again(app: str, epoch: Epoch, table: TableContent) -> None:
    """Write the table of a snapshot from the beginning, durably; raises as `publish_version`."""
    remove_table(table.root)
    publish_version(app, epoch, table)


def remove_table(root: SharedRoot) -> None:
    """Let Delta readers see no table in a folder; the files of rows stay, because they belong to the snapshot."""
    for name in list(root.names(LOG_FOLDER)):
        root.remove(f"{LOG_FOLDER}/{name}")


def publish_version(app: str, epoch: Epoch, content: TableContent) -> None:
    """Add a version to a table, durably; a version may have other columns than the version before.

    Raises:
        OSError: The disk is full or fails, or another host adds versions; the former version stays the newest.
    """
    root = content.root
    adds = [_add_of(file) for file in content.files]
    properties = CommitProperties(custom_metadata={_EPOCH: str(int(epoch))})
    shape = Schema.from_arrow(content.schema)
    try:
        table = _table(root)
        if table is None:
            root.make_folders()
            remove_table(root)
            uri, options = root.address()
            create_table_with_add_actions(
                uri, shape, adds, mode="overwrite", name=f"{app}.{content.name}",
                configuration=_CONFIGURATION, storage_options=options, commit_properties=properties,
            )  # fmt: skip
        else:
            table.create_write_transaction(
                [*adds], "overwrite", shape, commit_properties=properties
            )
    except DeltaError as error:
        raise OSError(str(error)) from error
    # The library does not sync, and a manifest must not name a version that a power cut can take
    # away.
    root.settle(LOG_FOLDER, with_bytes=True)


def _table(root: SharedRoot) -> DeltaTable | None:
    try:
        return _opened(root)
    except (TableNotFoundError, DeltaError):
        return None


def _opened(root: SharedRoot) -> DeltaTable:
    uri, options = root.address()
    return DeltaTable(uri, storage_options=options)


def _add_of(file: SnapshotFile) -> AddAction:
    stats = msgspec.json.encode({"numRecords": file.rows}).decode()
    changed = True
    return AddAction(_name_of(file), file.size, {}, time.time_ns() // 1_000_000, changed, stats)


def _name_of(file: SnapshotFile) -> str:
    return file.path.rpartition("/")[2]
