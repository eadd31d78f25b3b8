"""Writing snapshots: the former snapshot and the later changes in the journal, merged by columns.

A snapshot is the state after its epoch, and exists as a whole or not at all. It is made from immutable
files and does not use the state stores, so it may be made at the same time as any other work.
Unchanged entities are copied as columns, so only changes cost Python code.

A snapshot has slices, which are runs of buckets; different processes can write them. The steps, in
order (`reached` is called after each): `snapshot-slice` for each slice, `snapshot-written`,
`snapshot-published` when Delta readers see it, `snapshot-listed` when it exists, `snapshot-cleaned`.

Several hosts may write one snapshot. Their files have different names, and the manifest of the first one counts.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.ids import BEFORE_FIRST, BUCKETS, Epoch, is_system
from penstock.errors import Corrupt, Diverged
from penstock.files import durable
from penstock.files.retired import is_useless, retire, retired
from penstock.files.sealed import checksum_of, seal, unseal
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import Journal, PartKind, StepObserver, ignore_step
from penstock.journal.parquet import key_column
from penstock.model.application import App
from penstock.snapshots import delta_table as lake
from penstock.snapshots.column import TooNarrow
from penstock.snapshots.newest_states import all_states, buckets_of, sorted_by_key
from penstock.snapshots.snapshot import (
    MANIFEST,
    MANIFESTS,
    ClassFiles,
    Manifest,
    SnapshotColumns,
    SnapshotFile,
    Snapshots,
    slice_bounds,
)
from penstock.snapshots.table import tables_of

SLICE_ROWS: Final = 250_000
"""About how many entities a slice has; bounds the memory of writing it."""

CHANGES_MAX: Final = 2_000_000
"""Changes that are merged at once; after more changes, several snapshots are made in turn."""

_ROW_GROUP: Final = 65_536


class Slice(msgspec.Struct, frozen=True):
    """One slice of a snapshot, to be written.

    Attributes:
        base: The epoch of the former snapshot; -1 without a former snapshot.
        number: The number of the slice, from 0.
        slices: How many slices the snapshot has.
        wide: The classes with wide columns.
    """

    epoch: Epoch
    base: Epoch
    number: int
    slices: int
    wide: list[str]


class WrittenSlices(msgspec.Struct, frozen=True):
    """The files of written slices, by class; or the classes that must become wide first."""

    files: dict[str, list[SnapshotFile]] = {}
    wide: list[str] = []


def write_next_snapshot(
    app: App,
    journal: Journal,
    snapshots: Snapshots,
    upto: Epoch,
    reached: StepObserver = ignore_step,
) -> Manifest | None:
    """Write the next snapshot, and return its manifest; None if it exists already.

    Args:
        upto: The epoch of the snapshot; with more than `CHANGES_MAX` changes it is an earlier epoch.
        reached: Called after each step.

    Raises:
        Corrupt: The former snapshot or the journal is damaged.
    """
    slices = plan_slices(app, journal, snapshots, upto)
    if not slices:
        return None
    written = write_slices(app, journal, snapshots, slices, reached)
    # A class becomes wide in all slices, because its files are one table.
    while written.wide:
        wide = sorted({*slices[0].wide, *written.wide})
        slices = [msgspec.structs.replace(piece, wide=wide) for piece in slices]
        written = write_slices(app, journal, snapshots, slices, reached)
    reached("snapshot-written")
    return _publish(app, journal, snapshots, slices[0], written.files, reached)


def plan_slices(app: App, journal: Journal, snapshots: Snapshots, upto: Epoch) -> list[Slice]:
    """Return the slices of the next snapshot, or nothing; raises as `write_next_snapshot`."""
    base = snapshots.newest(upto)
    after = BEFORE_FIRST if base is None else base.epoch
    if after >= upto:
        return []
    if journal.first() > after + 1:
        raise Diverged(
            f"the journal begins with epoch {journal.first()}, and there is no snapshot of the "
            f"epoch before it (the newest is of {after}); restore a backup"
        )
    changes, epoch = 0, after
    for commit in journal.commits(after, upto):
        changes += sum(part.rows for part in commit.parts_of(PartKind.CHANGES))
        epoch = commit.epoch
        # The memory of a merge is bounded; the next snapshot goes on from this epoch.
        if changes >= CHANGES_MAX:
            break
    rows = changes + (0 if base is None else base.rows)
    # A power of two divides the buckets evenly, so a file of an older snapshot lies in one slice,
    # or slices in it.
    slices = min(BUCKETS, 1 << ((max(1, rows) - 1) // SLICE_ROWS).bit_length())
    # A class is tried with narrow columns each time, so that its types depend on the state and not on its history.
    return [Slice(epoch, after, number, slices, []) for number in range(slices)]


def write_slices(
    app: App,
    journal: Journal,
    snapshots: Snapshots,
    slices: Sequence[Slice],
    reached: StepObserver,
) -> WrittenSlices:
    """Write slices of one snapshot, durably.

    Args:
        reached: Called after each slice.
    """
    first_piece = slices[0]
    base = None if first_piece.base == BEFORE_FIRST else snapshots.open(first_piece.base)
    changes = all_states(journal, first_piece.base, first_piece.epoch)
    buckets = pa.array(buckets_of(key_column(changes)))
    changes = changes.append_column("bucket", buckets)
    classes = columns_of(app, first_piece.wide, first_piece.epoch)
    known = pc.unique(changes["entity"]).to_pylist() + list(base.classes if base else ())
    classes |= _system_columns(known)
    files: dict[str, list[SnapshotFile]] = {name: [] for name in classes}
    narrow: set[str] = set()
    for piece in slices:
        bounds = slice_bounds(piece.number, piece.slices)
        mine = _within(changes, "bucket", bounds)
        for name, columns in classes.items():
            before = None if base is None else base.classes.get(name)
            its = mine.filter(pc.equal(mine["entity"], name))
            try:
                is_same = columns.is_of(app, name, first_piece.base)
                gone = its["key"].combine_chunks()
                former = _former_rows(snapshots, columns, before, bounds, gone, is_same=is_same)
                rows = _merged(columns, former, its, piece.epoch)
            except TooNarrow:
                narrow.add(name)
                continue
            # After one class is too narrow, the slices are written again, so no further file is
            # worth its bytes.
            if rows.num_rows and not narrow:
                files[name].append(_write(snapshots.root, columns, rows, piece))
        reached("snapshot-slice")
    return WrittenSlices({}, sorted(narrow)) if narrow else WrittenSlices(files)


def columns_of(app: App, wide: Iterable[str], epoch: Epoch) -> dict[str, SnapshotColumns]:
    """Return the columns of every class's snapshot as an epoch had them, without the rows of the engine."""
    return {name: SnapshotColumns(table) for name, table in tables_of(app, wide, epoch).items()}


def tables_in(
    snapshots: Snapshots, manifest: Manifest, app: App | None = None
) -> Iterator[lake.TableContent]:
    """Yield the Delta tables of a snapshot.

    Args:
        app: The application; without it, the tables of classes without entities are left out.

    Raises:
        Corrupt: A file is missing or damaged.
    """
    wide = [name for name, its in manifest.classes.items() if its.wide]
    declared = {} if app is None else columns_of(app, wide, manifest.epoch)
    for name, its in manifest.classes.items():
        if is_system(name):
            continue
        if its.files:
            path = its.files[0].path
            yield _table(snapshots, path.partition("/")[0], _schema_of(snapshots, path), its.files)
        elif name in declared:
            columns = declared[name]
            yield _table(snapshots, columns.folder, columns.schema, [])


def _table(
    snapshots: Snapshots, folder: str, schema: pa.Schema, files: Sequence[SnapshotFile]
) -> lake.TableContent:
    return lake.TableContent(folder, snapshots.root.folder(folder), schema, files)


def _schema_of(snapshots: Snapshots, name: str) -> pa.Schema:
    try:
        with snapshots.root.reading(name) as path:
            return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise Corrupt(
            f"the snapshot's file {name} in {snapshots.root} cannot be read: {error}"
        ) from error


def publish_tables(snapshots: Snapshots, app_name: str, app: App | None = None) -> None:
    """Let Delta readers see the newest snapshot, where they see something else.

    Args:
        snapshots: The snapshots, which no other process writes.

    Raises:
        Corrupt: A file of the snapshot is missing or damaged.
        OSError: The disk is full or fails.
    """
    manifest = snapshots.newest()
    if manifest is None:
        return
    for table in tables_in(snapshots, manifest, app):
        if table.difference(manifest.epoch) is not None:
            lake.publish_again(app_name, manifest.epoch, table)


def _system_columns(names: Iterable[str]) -> dict[str, SnapshotColumns]:
    """Return the columns of those names that belong to the engine."""
    return {name: SnapshotColumns(None) for name in filter(is_system, names)}


def remove_snapshots(snapshots: Snapshots, epochs: Iterable[Epoch]) -> None:
    """Remove snapshots, and the files that belong to no other snapshot."""
    gone = list(epochs)
    if not gone:
        return
    with durable.storage("remove old snapshots"):
        for epoch in gone:
            retire(snapshots.root, snapshots.path_of(epoch))
        snapshots.root.settle(MANIFESTS)
        _clean(snapshots)


def _publish(
    app: App,
    journal: Journal,
    snapshots: Snapshots,
    piece: Slice,
    files: dict[str, list[SnapshotFile]],
    reached: StepObserver,
) -> Manifest:
    """Publish a snapshot whose slices are written: its Delta tables, then its manifest."""
    commit = next(iter(journal.commits(Epoch(piece.epoch - 1), piece.epoch)))
    with durable.storage(f"publish the snapshot of epoch {piece.epoch}"):
        shape = columns_of(app, piece.wide, piece.epoch)
        for name, columns in shape.items():
            table = _table(snapshots, columns.folder, columns.schema, files[name])
            lake.publish_version(app.name, piece.epoch, table)
        reached("snapshot-published")
        shape |= _system_columns(name for name, written in files.items() if written)
        classes = {
            name: ClassFiles(name in piece.wide, columns.own, files[name])
            for name, columns in shape.items()
        }
        own = Manifest(piece.epoch, commit.time_us, journal.identity, piece.slices, classes)
        snapshots.root.make_folders(MANIFESTS)
        # The manifest makes the snapshot exist, so everything that it names must be on the disk.
        manifest = _listed(snapshots, own)
        reached("snapshot-listed")
        if snapshots.newest() != own:
            # Another host has made this snapshot, or a later one, and Delta readers see what its manifest does not list.
            publish_tables(snapshots, app.name, app)
        _clean(snapshots)
        reached("snapshot-cleaned")
    return manifest


def _listed(snapshots: Snapshots, manifest: Manifest) -> Manifest:
    """Create a manifest, unless another host has; return the one that counts."""
    path, data = snapshots.path_of(manifest.epoch), seal(MANIFEST, manifest)
    if snapshots.root.create(path, data):
        return manifest
    others = snapshots.sound(manifest.epoch)
    if others is not None and others.journal == manifest.journal:
        return others
    snapshots.root.replace(path, data)  # it was damaged, or of the journal that this one has left
    return manifest


def _former_rows(
    snapshots: Snapshots,
    columns: SnapshotColumns,
    its: ClassFiles | None,
    bounds: tuple[int, int],
    gone: pa.Array,
    *,
    is_same: bool,
) -> pa.Table:
    """Return the rows of some buckets from the former snapshot, in the present columns.

    Args:
        its: The files of the class in the former snapshot; None if it has no such class.
        bounds: The buckets [first, end).
        gone: Keys without a row: those that have changed, and so need no wide columns for their former values.
        is_same: Whether the class has had no other version since. If not, or if the class has other types now, the rows
            are built from `state`.
    """
    first, end = bounds
    tables = [columns.schema.empty_table()]
    for file in [] if its is None else its.files:
        if its is not None and file.first < end and file.end > first:
            rows = snapshots.read(file)
            if not (is_same and rows.schema.equals(columns.schema)):
                states = snapshots.states(its, file)
                rows = columns.rows(states.filter(pc.invert(pc.is_in(states["key"], gone))))
            tables.append(_within(rows, columns.bucket, bounds))
    return pa.concat_tables(tables)


def _merged(
    columns: SnapshotColumns, former: pa.Table, changes: pa.Table, epoch: Epoch
) -> pa.Table:
    """Return the rows of a slice.

    Raises:
        TooNarrow: A value needs wide columns.
    """
    kept = former.filter(pc.invert(pc.is_in(former[columns.key], changes["key"].combine_chunks())))
    present = changes.filter(pc.is_valid(changes["state"]))
    rows = sorted_by_key(pa.concat_tables([kept, columns.rows(present)]), columns.key)
    stamp = pa.repeat(pa.scalar(int(epoch), pa.int64()), rows.num_rows)
    return rows.set_column(rows.schema.get_field_index(columns.epoch), columns.epoch, stamp)


def _within(rows: pa.Table, bucket: str, bounds: tuple[int, int]) -> pa.Table:
    first, end = bounds
    if end - first == BUCKETS:
        return rows
    column = rows[bucket]
    return rows.filter(pc.and_(pc.greater_equal(column, first), pc.less(column, end)))


def _write(
    root: SharedRoot, columns: SnapshotColumns, rows: pa.Table, piece: Slice
) -> SnapshotFile:
    folder = columns.folder
    path = f"{folder}/{piece.epoch:012}-{piece.number:04}-{secrets.token_hex(4)}.parquet"
    sink = pa.BufferOutputStream()
    # Keys and stored states hardly repeat, so a dictionary of them is work and bytes for nothing, and no reader skips rows
    # by the bounds of stored states.
    unique = {columns.key, columns.state, *columns.attributes[:1]}
    stored = _stored_columns(columns.schema)
    pq.write_table(
        rows,
        sink,
        row_group_size=_ROW_GROUP,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in stored if name not in unique],
        write_statistics=[name for name in stored if name != columns.state],
    )
    data = memoryview(sink.getvalue())
    with durable.storage(f"write the snapshot {path}"):
        root.add(path, data)
    bounds = slice_bounds(piece.number, piece.slices)
    return SnapshotFile(path, rows.num_rows, len(data), checksum_of(data), *bounds)


def _stored_columns(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns in a file; a nested column has several, such as `tags.list.element`."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    stored = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [stored.column(index).path for index in range(len(stored))]


def _clean(snapshots: Snapshots) -> None:
    """Remove the files that belong to no snapshot, such as those of an attempt that died."""
    manifests = [snapshots.sound(epoch) for epoch in snapshots.epochs()]
    if None in manifests:
        return  # the files of a damaged manifest are not known
    listed = {
        file.path for manifest in manifests if manifest is not None for file in manifest.files
    }
    for data in retired(snapshots.root, MANIFESTS):
        listed |= {file.path for file in unseal(MANIFEST, data, Manifest).files}
    for path in snapshots.stored():
        # Another host may be about to list it.
        if path not in listed and is_useless(snapshots.root, path):
            snapshots.root.remove(path)


@contextmanager
def snapshot_lock(snapshots: Snapshots, *, wait: bool = False) -> Iterator[bool]:
    """Keep other processes from writing snapshots; yield False if another process does and not `wait`."""
    with durable.storage("begin a snapshot"):
        snapshots.root.make_folders()
    with snapshots.root.alone(timeout_s=None if wait else 0) as held:
        yield held
