"""Snapshots as Delta tables, for other engines; written by delta-rs.

A new version of a table lists exactly the files of a snapshot, and is durable. The tables are derived
from the snapshots' manifests, so a table that cannot be read, or that shows other files, is created again.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from penstock.base.cause import cause_text
from penstock.base.ids import Epoch
from penstock.files import durable
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
    """The table of one class in a snapshot."""

    directory: Path
    schema: pa.Schema
    files: Sequence[SnapshotFile]

    @property
    def log(self) -> Path:
        """The directory of the file that Delta readers read first."""
        return self.directory / LOG_FOLDER

    def difference(self, epoch: Epoch) -> str | None:
        """Return the difference between the snapshot of an epoch and the table of a Delta reader; None if they agree."""
        try:
            table = DeltaTable(str(self.directory))
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
            table = DeltaTable(str(self.directory))
            newer = int(table.history(1)[0][_EPOCH])
            sizes = [
                (self.directory / name).stat().st_size == size for name, size, _ in _files_in(table)
            ]
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
    # Delta's own log only: the files of rows belong to the snapshot.
    shutil.rmtree(table.log, ignore_errors=True)
    publish_version(table.directory, app, table.schema, epoch, table.files)


def publish_version(
    directory: Path, app: str, schema: pa.Schema, epoch: Epoch, files: Sequence[SnapshotFile]
) -> None:
    """Add a version to a table, durably; a version may have other columns than the version before.

    Raises:
        OSError: The disk is full or fails; the former version stays the newest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    adds = [_add_of(file) for file in files]
    properties = CommitProperties(custom_metadata={_EPOCH: str(int(epoch))})
    shape = Schema.from_arrow(schema)
    try:
        table = _table(directory)
        if table is None:
            shutil.rmtree(directory / LOG_FOLDER, ignore_errors=True)
            create_table_with_add_actions(
                str(directory), shape, adds, mode="overwrite", name=f"{app}.{directory.name}",
                configuration=_CONFIGURATION, commit_properties=properties,
            )  # fmt: skip
        else:
            table.create_write_transaction(
                [*adds], "overwrite", shape, commit_properties=properties
            )
    except DeltaError as error:
        raise OSError(str(error)) from error
    # The library does not sync, and a manifest must not name a version that a power cut can take
    # away.
    for path in (directory / LOG_FOLDER).iterdir():
        if path.is_file():
            durable.sync(path)
    durable.sync_directory(directory / LOG_FOLDER)


def _table(directory: Path) -> DeltaTable | None:
    try:
        return DeltaTable(str(directory))
    except (TableNotFoundError, DeltaError):
        return None


def _add_of(file: SnapshotFile) -> AddAction:
    stats = msgspec.json.encode({"numRecords": file.rows}).decode()
    changed = True
    return AddAction(_name_of(file), file.size, {}, time.time_ns() // 1_000_000, changed, stats)


def _name_of(file: SnapshotFile) -> str:
    return file.path.rpartition("/")[2]
