"""The entities of a class after an epoch, as a Spark DataFrame.

The rows are those of `SELECT * FROM Item AS OF EPOCH n`, in no order. Each SQL type, also a nested
type, becomes a Spark type: INTERVAL a day-time interval, HUGEINT a decimal, UUID text, and TIME
microseconds since midnight, as in snapshots, because Spark has no type for it by default. The rows are
in Parquet files of a directory that is removed when the process ends; Spark reads them in parallel.
The metadata of the key's column names the epoch (`penstock.epoch`).
"""

import atexit
import os
import tempfile
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession, functions

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, QueryError
from penstock.files.roots import snapshots_root
from penstock.files.temporary_folder import temporary_folder
from penstock.journal.api import Journal
from penstock.journal.as_of import PointInTime, epoch_as_of, held_epochs
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.java import java_home
from penstock.snapshots.snapshot import Snapshots, stored_type
from penstock.snapshots.state_as_of import TypedStates, oldest_state, state_as_of

EPOCH: Final = "penstock.epoch"
"""The name of the epoch in the metadata of the key's column."""

_FILE_ROWS: Final = 262_144
_LOCAL: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_AT_EXIT: Final = ExitStack()
atexit.register(_AT_EXIT.close)


def read_table(
    app: App,
    name: str,
    as_of: int | datetime | None = None,
    *,
    data: Path | None = None,
    session: SparkSession | None = None,
) -> DataFrame:
    """Return the entities of a class after one epoch, as a Spark DataFrame.

    Args:
        app: The application.
        name: The class.
        as_of: An epoch (int), or an instant (datetime; UTC where it has no zone), which means the
            newest epoch that was committed by then; None: the newest epoch.
        data: The data directory; None: `.penstock` and the application's name.
        session: A Spark session; None: the active session, or a new session.

    Returns:
        A row for each entity, in no order: the key and the attributes as typed columns.

    Raises:
        ConfigError: The directory has no journal of this application.
        ClassChanged: A class is stored with another declaration.
        RequestError: The application has no such class.
        QueryError: The epoch is not held.
        IntegrityError: The journal is damaged.
    """
    folder = Path(".penstock") / app.name if data is None else data
    if DataDirectory(folder).app_name is None:
        raise ConfigError(
            f"there is no journal of {app.name} in {folder}; name its directory: data="
        )
    with closing(DataDirectory(folder).open_journal(app)) as journal:
        scratch = _AT_EXIT.enter_context(temporary_folder("table"))
        chosen = session or SparkSession.getActiveSession() or _started(app.name, scratch)
        snapshots = Snapshots(snapshots_root(folder), journal.identity)
        return frame_of(chosen, app, (journal, snapshots), name, as_of, scratch)


def frame_of(
    session: SparkSession,
    app: App,
    source: tuple[Journal, Snapshots],
    name: str,
    as_of: PointInTime | None,
    scratch: Path,
) -> DataFrame:
    """Return the entities of a class; their rows are written to files below `scratch`.

    Args:
        as_of: An epoch or an instant; None: the newest epoch.
    """
    entity = app.entity(name).stored_name
    journal, snapshots = source
    epoch = held_epochs(journal)[1] if as_of is None else epoch_as_of(journal, as_of)
    oldest = oldest_state(journal, snapshots)
    if oldest is None or epoch < oldest:
        raise QueryError(f"the state after epoch {epoch} was removed by retention")
    states = state_as_of(app, journal, entity, epoch, snapshots)
    folder = Path(tempfile.mkdtemp(prefix=f"{epoch}-", dir=scratch))
    _write(states.rows, folder)
    # An explicit file system, because executors do not have the file system of the driver's session.
    frame = session.read.option("fs.file.impl", _LOCAL).parquet(f"file://{folder.absolute()}")
    return frame.select(*_columns(states, epoch))


def _write(rows: pa.Table, folder: Path) -> None:
    schema = pa.schema([pa.field(field.name, stored_type(field.type)) for field in rows.schema])
    stored = pa.Table.from_arrays(
        [column.cast(field.type) for column, field in zip(rows.columns, schema, strict=True)],
        schema=schema,
    )
    for number, start in enumerate(range(0, max(1, rows.num_rows), _FILE_ROWS)):
        path = folder / f"{number:06}.parquet"
        pq.write_table(stored.slice(start, _FILE_ROWS), path, store_schema=False)


def _columns(states: TypedStates, epoch: Epoch) -> list[Column]:
    columns = []
    for name, column in states.table.columns:
        value = _restored(functions.col(f"`{name}`"), column.arrow)
        value = functions.array_sort(value) if column.ordered else value
        metadata = {EPOCH: int(epoch)} if name == states.table.key else {}
        columns.append(value.alias(name, metadata=metadata))
    return columns


def _restored(value: Column, arrow_type: pa.DataType) -> Column:
    """Return a stored column with its durations as intervals, at any depth."""
    if pa.types.is_duration(arrow_type):
        return functions.timestamp_micros(value) - functions.timestamp_micros(functions.lit(0))
    if not _has_duration(arrow_type):
        return value
    if pa.types.is_list(arrow_type):
        return functions.transform(value, lambda item: _restored(item, arrow_type.value_type))
    if pa.types.is_map(arrow_type):
        keyed = functions.transform_keys(value, lambda key, _: _restored(key, arrow_type.key_type))
        return functions.transform_values(
            keyed, lambda _, item: _restored(item, arrow_type.item_type)
        )
    fields = [_restored(value[field.name], field.type).alias(field.name) for field in arrow_type]
    return functions.when(value.isNotNull(), functions.struct(*fields))


def _has_duration(arrow_type: pa.DataType) -> bool:
    inner = [arrow_type.field(place).type for place in range(arrow_type.num_fields)]
    return bool(pa.types.is_duration(arrow_type)) or any(map(_has_duration, inner))


def _started(name: str, scratch: Path) -> SparkSession:
    os.environ.setdefault("JAVA_HOME", str(java_home(scratch)))
    return SparkSession.builder.appName(f"penstock-{name}").getOrCreate()
