"""Parts: encoding and decoding the Parquet files of an epoch, and their names.

Rows are read as they were written. Damage of any byte is found before a row is used. Two attempts
never share a name. The adapters store the bytes.

Rows are compressed with zstd at level 1, without dictionaries and statistics, because encoded values
and ids hardly repeat: dictionaries doubled the time of writing 5,000 rows (2.8 ms instead of 1.4), and
the file was larger. Few rows are not compressed, because each column prepares a compressor of its own. The two parts of an epoch of
22 transactions of TPC-C take 280 µs to write and 200 µs to read so, and 820 µs and 640 µs with zstd (Snappy: 390 µs and 240 µs).
They have 92 KB in place of 46 KB, until compaction writes their rows again.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import Corrupt, Diverged
from penstock.files.sealed import checksum_of
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import DEFAULT_COMPACTION, SCHEMAS, Commit, Journal, Part, PartKind


def rows_by_epoch(
    journal: Journal, part_kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
) -> Iterator[tuple[Epoch, pa.Table]]:
    """Implement `Journal.rows`, with one table for each epoch."""
    reached = after
    for commit in journal.commits(after, upto):
        if commit.epoch != reached + 1:
            break
        yield commit.epoch, epoch_rows(journal, commit, part_kind, columns)
        reached = commit.epoch
    if reached < upto:
        raise missing_epoch(Epoch(reached + 1))


def epoch_rows(
    journal: Journal, commit: Commit, part_kind: PartKind, columns: Sequence[str]
) -> pa.Table:
    """Return the rows of one epoch."""
    tables = journal.read_all(commit.parts_of(part_kind), columns)
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables) if tables else SCHEMAS[part_kind].empty_table().select(columns)


def joined(tables: Iterable[pa.Table], rows_min: int) -> Iterator[pa.Table]:
    """Yield the rows of tables in fewer tables, each of at least `rows_min` rows except the last; none if there is no table."""
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= rows_min:
            yield pa.concat_tables(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def key_column(rows: pa.Table) -> pa.ChunkedArray:
    """Return the entity key of each row, from its columns `entity` and `key`; all are strings."""
    return pc.binary_join_element_wise(rows["entity"], rows["key"], "/")


def entity_keys(rows: pa.Table) -> list[EntityKey]:
    """Return the entity key of each row, as `key_column` does, as Python's strings."""
    keys: list[EntityKey] = key_column(rows).to_pylist()
    return keys


def missing_epoch(epoch: Epoch) -> Diverged:
    """Return the error for an epoch that is needed and not held."""
    return Diverged(f"the journal has no epoch {epoch}, which is needed")


_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")  # needs no escaping in a path or a Delta log
_PATH: Final = re.compile(r"kind=[a-z]+/(?P<epoch>\d{12})-[A-Za-z0-9._-]+\.parquet")
_EMPTY: Final = "empty"
_PLAIN_BYTES_MAX: Final = DEFAULT_COMPACTION.small // 2
"""Rows of so many bytes are not compressed: an epoch with changes and transactions of this size is still merged."""


def stored_names(root: SharedRoot) -> Iterator[tuple[str, str]]:
    """Yield the folder and the name of each file in the folders of a journal that hold parts."""
    for part_kind in PartKind:
        folder = f"kind={part_kind}"
        for name in list(root.names(folder)):
            yield folder, name


def encode(part_kind: PartKind, rows: pa.Table, name: str) -> tuple[Part, memoryview]:
    """Return a part and the bytes of its file; all rows are of one epoch."""
    assert rows.schema.equals(SCHEMAS[part_kind]), f"{part_kind} rows have the schema {rows.schema}"
    assert _NAME.fullmatch(name), f"{name!r} is not a name for a part"
    # Compaction writes the rows of small files again, and compresses them.
    is_small = rows.get_total_buffer_size() <= _PLAIN_BYTES_MAX  # `nbytes` takes 15 µs
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="none" if is_small else "zstd",
        compression_level=None if is_small else 1,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    data = memoryview(sink.getvalue())
    # The random token: a driver that starts again never meets the orphans of its former attempts.
    path = f"kind={part_kind}/{_epoch_text(rows)}-{name}-{secrets.token_hex(4)}.parquet"
    return Part(part_kind, path, rows.num_rows, len(data), checksum_of(data)), data


def decode(part: Part, data: bytes, columns: Sequence[str] | None) -> pa.Table:
    """Return the rows of a part's file.

    Raises:
        Corrupt: The bytes were changed.
    """
    if len(data) != part.size:
        raise damaged_part(part, f"has {len(data)} bytes instead of {part.size}")
    if checksum_of(data) != part.checksum:
        raise damaged_part(part, f"does not have the checksum {part.checksum}")
    source = pa.BufferReader(data)
    # A part is small, and other tasks use the other cores, so it is read without threads. The function
    # `read_table` would start threads in any case, take four times as long, and abort a process that
    # ends soon after.
    names = None if columns is None else list(columns)
    rows = pq.ParquetFile(source, pre_buffer=False).read(columns=names, use_threads=False)
    assert rows.num_rows == part.rows, f"{part.path} has {rows.num_rows} rows"
    if names is not None:
        return rows.select(names)
    if rows.schema.equals(SCHEMAS[part.kind]):
        return rows  # a cast that changes nothing costs 28 µs
    return rows.cast(SCHEMAS[part.kind])


def damaged_part(part: Part, how: str) -> Corrupt:
    """Return the error for a part that cannot be used; it says how to repair the journal."""
    epoch = epoch_of(part.path)
    return Corrupt(
        f"part {part.path} of epoch {'unknown' if epoch is None else epoch} {how}; "
        "put the file back from a backup. Local state and snapshots that were made from it stay "
        "valid, if they are of this epoch or later"
    )


def epoch_of(path: str) -> Epoch | None:
    """Return the epoch in a part's path; None if the part has no rows, or the path is another's."""
    match = _PATH.fullmatch(path)
    return None if match is None else Epoch(int(match["epoch"]))


def _epoch_text(rows: pa.Table) -> str:
    if rows.num_rows == 0:
        return _EMPTY
    epochs = rows.column("epoch")
    first: int = epochs[0].as_py()
    assert first >= 0, f"a part holds epoch {first}"
    if rows.num_rows > 1:
        others = epochs.to_numpy()
        assert (others == first).all(), f"a part holds epochs {first} to {others.max()}"
    return f"{first:012}"
