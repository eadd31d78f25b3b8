"""Snapshots: the state after one epoch, as one table for each entity class and each task.

    DATA/snapshots/Item/…            a Delta table: its newest version is the newest snapshot
    DATA/snapshots/wordcount.Count/… the same for the rows of a task
    DATA/snapshots/$system/…         the rows of the engine: files without a Delta table
    DATA/snapshots/manifests/…       for each snapshot, which files it consists of

In an object store these are names of objects, and delta-rs commits the tables by conditional puts. A snapshot exists when its manifest exists. A row is an entity: `key` (its text), the attributes as in
SQL, `bucket`, `epoch` (of the snapshot), and `state`, the attributes as stored in the journal, from
which local state is recovered. Delta has no types for times of day and durations, so they are stored
in microseconds.

A snapshot is read as it was written, or refused. `snapshot_writer` writes snapshots.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.ids import BUCKETS, Epoch
from penstock.errors import Corrupt, JournalUnavailable
from penstock.files import durable
from penstock.files.local_root import rooted
from penstock.files.sealed import checksum_of, unseal
from penstock.files.shared_root import SharedRoot
from penstock.model.application import App
from penstock.model.versions.former_class import type_at
from penstock.snapshots.column import distinct
from penstock.snapshots.table import EntityTable

_log = logging.getLogger(__name__)

MANIFESTS: Final = "manifests"
MANIFEST: Final = "manifest"
"""The name of a manifest in its sealed file."""
_SUFFIX: Final = ".json"
_ROWS: Final = ".parquet"
_DAMAGED: Final = ".damaged"

SYSTEM_FOLDER: Final = "$system"
"""The directory of the files with rows of the engine."""

SYSTEM_COLUMNS: Final = ("key", "bucket", "epoch", "state")
"""Columns that are not attributes."""


class SnapshotFile(msgspec.Struct, frozen=True):
    """One Parquet file: the entities of one class in some buckets.

    Attributes:
        path: Relative to the snapshots' root.
        size: Bytes.
        checksum: XXH3-128 of its bytes, hexadecimal.
        first, end: The buckets [first, end) of the entities.
    """

    path: str
    rows: int
    size: int
    checksum: str
    first: int
    end: int


class ClassFiles(msgspec.Struct, frozen=True):
    """A class in a snapshot.

    Attributes:
        wide: Whether its columns have the wide types.
        is_sealed: Whether the class is personal, so that its only typed column is the key.
        own: The names of `SYSTEM_COLUMNS` in the files; they differ if an attribute has such a name.
        files: The files; empty if the class has no entities.
    """

    wide: bool
    own: list[str]
    files: list[SnapshotFile]


class Manifest(msgspec.Struct, frozen=True):
    """One snapshot.

    Attributes:
        epoch: The snapshot is the state after this epoch.
        time_us: When the epoch was committed, microseconds since the Unix epoch.
        slices: The number of runs of buckets, each with files of its own.
        classes: The files of each class, by class name.
    """

    epoch: Epoch
    time_us: int
    journal: str
    slices: int
    classes: dict[str, ClassFiles]

    @property
    def files(self) -> Iterator[SnapshotFile]:
        """All of its files."""
        for class_files in self.classes.values():
            yield from class_files.files

    @property
    def rows(self) -> int:
        """How many entities it holds."""
        return sum(file.rows for file in self.files)


class Snapshots:
    """The snapshots of one application; any process may read them."""

    def __init__(self, place: SharedRoot | Path, journal: str) -> None:
        """Name the root of snapshots, or its folder, which may be missing, and the journal's identity."""
        self.root = rooted(place)
        self._journal = journal

    def epochs(self) -> list[Epoch]:
        """Return the epochs of all snapshots, in order."""
        with durable.storage(f"list the snapshots in {self.root}"):
            stems = [
                name.removesuffix(_SUFFIX)
                for name in self.root.names(MANIFESTS)
                if name.endswith(_SUFFIX)
            ]
        return sorted(Epoch(int(stem)) for stem in stems if stem.isdigit())

    def stored(self) -> list[str]:
        """Return the names of all files of rows, listed or not, relative to the snapshots' root."""
        return [
            f"{folder}/{name}"
            for folder in list(self.root.names())
            for name in self.root.names(folder)
            if name.endswith(_ROWS)
        ]

    def newest(self, upto: Epoch | None = None) -> Manifest | None:
        """Return the newest snapshot up to an epoch; None if there is none."""
        return next(self.every(upto), None)

    def every(self, upto: Epoch | None = None) -> Iterator[Manifest]:
        """Yield the snapshots of this journal up to an epoch, the newest first."""
        for epoch in reversed(self.epochs()):
            if upto is None or epoch <= upto:
                manifest = self.sound(epoch)
                # Without a damaged one, an older snapshot and the journal lead to the same state.
                if manifest is not None and manifest.journal == self._journal:
                    yield manifest

    def sound(self, epoch: Epoch) -> Manifest | None:
        """Return the manifest of an epoch, of any journal; None if it is missing or damaged."""
        path = self.path_of(epoch)
        try:
            return unseal(MANIFEST, self.root.get(path), Manifest)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and self.root.answers_prove:
                # A store that does not answer has lost nothing.
                raise JournalUnavailable(
                    f"cannot read {path} in {self.root}: {error.strerror or error}"
                ) from error
            _log.warning(
                "a snapshot's manifest cannot be used",
                extra={"path": f"{self.root}/{path}", "cause": str(error)},
            )
            return None

    def open(self, epoch: Epoch) -> Manifest:
        """Return the snapshot of an epoch.

        Raises:
            Corrupt: It is missing or damaged.
            JournalUnavailable: The store does not answer.
        """
        manifest = self.sound(epoch)
        if manifest is None:
            raise Corrupt(f"the snapshot of epoch {epoch} in {self.root} cannot be read")
        return manifest

    def set_aside(self, epoch: Epoch) -> None:
        """Disable a damaged snapshot; its manifest is kept as `.damaged`."""
        path = self.path_of(epoch)
        with durable.storage(f"set the snapshot of epoch {epoch} aside"):
            self.root.replace(f"{path.removesuffix(_SUFFIX)}{_DAMAGED}", self.root.get(path))
            self.root.remove(path)
            self.root.settle(MANIFESTS)

    def path_of(self, epoch: Epoch) -> str:
        """Return the name of the manifest of an epoch, relative to the snapshots' root."""
        return f"{MANIFESTS}/{epoch:012}{_SUFFIX}"

    def read(self, file: SnapshotFile, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a file's rows; every byte is checked first.

        Raises:
            Corrupt: It is missing or damaged.
            JournalUnavailable: The disk fails.
        """
        with durable.storage(f"read the snapshot {file.path}"):
            try:
                data = self.root.get(file.path)
            except FileNotFoundError:
                raise _damaged(file, "is missing") from None
        if len(data) != file.size or checksum_of(data) != file.checksum:
            raise _damaged(file, "is damaged")
        source = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
        return source.read(columns=None if columns is None else list(columns), use_threads=False)

    def whole(self, manifest: Manifest) -> bool:
        """Say whether all files of a snapshot exist unchanged."""
        try:
            for file in manifest.files:
                self.read(file, [])
        except Corrupt:
            return False
        return True

    def states(self, class_files: ClassFiles, file: SnapshotFile) -> pa.Table:
        """Return the columns `key`, `bucket` and `state`, from which local state is recovered.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        own = dict(zip(SYSTEM_COLUMNS, class_files.own, strict=True))
        names = ["key", "bucket", "state"]
        return self.read(file, [own[name] for name in names]).rename_columns(names)


def slice_bounds(number: int, slices: int) -> tuple[int, int]:
    """Return the buckets [first, end) of a slice."""
    return number * BUCKETS // slices, (number + 1) * BUCKETS // slices


class SnapshotColumns:
    """The columns of a class's snapshot.

    Attributes:
        table: The class's table in SQL; None for rows of the engine, which have only `SYSTEM_COLUMNS`.
        own: The names of `SYSTEM_COLUMNS` here.
    """

    def __init__(self, table: EntityTable | None) -> None:
        self.table = table
        self.folder = SYSTEM_FOLDER if table is None else table.name
        self.is_sealed = table is not None and table.entity_type.personal
        self._typed = [] if table is None else table.columns
        if self.is_sealed:
            self._typed = self._typed[:1]  # the key; files must not have readable attributes
        names = [name for name, _ in self._typed]
        self.own = distinct([*names, *SYSTEM_COLUMNS])[len(names) :]
        self.key, self.bucket, self.epoch, self.state = self.own
        fields = [pa.field(name, stored_type(column.arrow)) for name, column in self._typed]
        self.schema = pa.schema(
            [
                pa.field(self.key, pa.string()),
                *fields,
                pa.field(self.bucket, pa.int32()),
                pa.field(self.epoch, pa.int64()),
                pa.field(self.state, pa.binary()),
            ]
        )

    def rows(self, states: pa.Table) -> pa.Table:
        """Return rows of entities from columns `key`, `bucket` and `state`; `epoch` is 0.

        Raises:
            TooNarrow: A value needs wide columns.
            Diverged: A state does not fit the class.
        """
        given = {
            self.key: states["key"],
            self.bucket: states["bucket"],
            self.epoch: pa.repeat(pa.scalar(0, pa.int64()), states.num_rows),
            self.state: states["state"],
        }
        if self.table is not None:
            keys = states["key"].to_pylist()
            typed = (
                self.table.keys(keys)
                if self.is_sealed
                else self.table.rows(keys, states["state"].to_pylist())
            )
            given |= {name: typed[name] for name in self.attributes}
        arrays = [given[field.name].cast(field.type) for field in self.schema]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def is_of(self, app: App, name: str, epoch: Epoch) -> bool:
        """Say whether a class had these columns after an epoch, too; the engine's rows always have."""
        declared = app.readable.get(name)
        if self.table is None or declared is None:
            return True
        return type_at(declared, epoch) is self.table.entity_type

    @property
    def attributes(self) -> list[str]:
        """The names of the columns that SQL has, too."""
        return [name for name, _ in self._typed]

    def shown(self, snapshots: Snapshots, file: SnapshotFile) -> pa.Table | None:
        """Return the columns that SQL has from a file of the same version of the class; None if they have other types.

        Raises:
            Corrupt: The file is missing or damaged.
        """
        rows = snapshots.read(file, self.attributes)
        wanted = pa.schema([self.schema.field(name) for name in self.attributes])
        return self.typed(rows) if rows.schema.equals(wanted) else None

    def typed(self, rows: pa.Table) -> pa.Table:
        """Return the columns that SQL has, with their types in SQL."""
        arrays = [rows[name].cast(column.arrow) for name, column in self._typed]
        return pa.Table.from_arrays(arrays, names=self.attributes)


def stored_type(data_type: pa.DataType) -> pa.DataType:
    """Return the stored type for a column's type: microseconds for times and durations."""
    if pa.types.is_time(data_type) or pa.types.is_duration(data_type):
        return pa.int64()
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, stored_type(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(stored_type(data_type.key_type), stored_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return pa.list_(stored_type(data_type.value_type))
    return data_type


def _damaged(file: SnapshotFile, how: str) -> Corrupt:
    return Corrupt(
        f"the snapshot's file {file.path} {how}; remove the manifests that name it, then the state is "
        "rebuilt from an older snapshot or from the journal"
    )
