"""Snapshots as Delta tables, for other engines; written by delta-rs.

A new version of a table lists exactly the files of a snapshot, and is durable. The tables are derived
from the snapshots' manifests, so a table that cannot be read is created again.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from penstock.base.ids import Epoch
from penstock.files import durable
from penstock.snapshots.snapshot import SnapshotFile

_LOG: Final = "_delta_log"
_CONFIGURATION: Final = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 days",  # the files of older versions are gone sooner
}


def publish_version(
    directory: Path, app: str, schema: pa.Schema, epoch: Epoch, files: Sequence[SnapshotFile]
) -> None:
    """Add a version to a table, durably; a version may have other columns than the version before.

    Args:
        directory: The table's directory.
        app: The application's name.
        schema: The schema of the files.
        epoch: The snapshot's epoch.
        files: All files of the version.

    Raises:
        OSError: The disk is full or fails; the former version stays the newest.
    """
    directory.mkdir(parents=True, exist_ok=True)
    adds = [_add_of(file) for file in files]
    properties = CommitProperties(custom_metadata={"penstock.epoch": str(int(epoch))})
    shape = Schema.from_arrow(schema)
    try:
        table = _table(directory)
        if table is None:
            shutil.rmtree(directory / _LOG, ignore_errors=True)
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
    for path in (directory / _LOG).iterdir():
        if path.is_file():
            durable.sync(path)
    durable.sync_directory(directory / _LOG)


def _table(directory: Path) -> DeltaTable | None:
    try:
        return DeltaTable(str(directory))
    except (TableNotFoundError, DeltaError):
        return None


def _add_of(file: SnapshotFile) -> AddAction:
    name = file.path.rpartition("/")[2]
    stats = msgspec.json.encode({"numRecords": file.rows}).decode()
    changed = True
    return AddAction(name, file.size, {}, time.time_ns() // 1_000_000, changed, stats)
