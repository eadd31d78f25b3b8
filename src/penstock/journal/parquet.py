"""Parts: the Parquet files of an epoch, from rows to bytes and back, and their names.

Promises that equal rows read equal, that damage of any byte is found before a row is used, and
that two attempts never share a name. Leaves to the adapters where the bytes are kept.

Rows are compressed with zstd at level 1, without dictionaries and statistics: they are encoded
values and ids that hardly repeat, and dictionaries doubled the time of writing 5,000 rows
(2.8 ms instead of 1.4) for a larger file.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.ids import Epoch
from penstock.errors import Corrupt
from penstock.files.checksum import checksum_of
from penstock.journal.api import SCHEMAS, Part, PartKind

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")  # needs no escaping in a path or a Delta log
_PATH: Final = re.compile(r"kind=[a-z]+/(?P<epoch>\d{12})-[A-Za-z0-9._-]+\.parquet")
_EMPTY: Final = "empty"


def encode(kind: PartKind, rows: pa.Table, name: str) -> tuple[Part, memoryview]:
    """Return a part and the bytes of its file.

    The path starts with the epoch of the rows and ends with a random token, so that a driver that
    starts again never meets the leftovers of its former attempts. All rows are of one epoch.
    """
    assert rows.schema.equals(SCHEMAS[kind]), f"{kind} rows have the schema {rows.schema}"
    assert _NAME.fullmatch(name), f"{name!r} is no name for a part"
    sink = pa.BufferOutputStream()
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    data = memoryview(sink.getvalue())
    path = f"kind={kind}/{_epoch_text(rows)}-{name}-{secrets.token_hex(4)}.parquet"
    return Part(kind, path, rows.num_rows, len(data), checksum_of(data)), data


def decode(part: Part, data: bytes, columns: Sequence[str] | None) -> pa.Table:
    """Return the rows of a part's file.

    Raises:
        Corrupt: The bytes are not those that were written.
    """
    if len(data) != part.size:
        raise damaged_part(part, f"has {len(data)} bytes instead of {part.size}")
    if checksum_of(data) != part.checksum:
        raise damaged_part(part, f"does not have the checksum {part.checksum}")
    source = pa.BufferReader(data)
    # Threads would fight over the cores that other tasks use; one part is small. `read_table` would
    # start some all the same, take four times as long, and abort a process that ends soon after.
    names = None if columns is None else list(columns)
    rows = pq.ParquetFile(source, pre_buffer=False).read(columns=names, use_threads=False)
    assert rows.num_rows == part.rows, f"{part.path} has {rows.num_rows} rows"
    return rows.select(names) if names is not None else rows.cast(SCHEMAS[part.kind])


def damaged_part(part: Part, how: str) -> Corrupt:
    """Return the error that says which part is unusable, and what helps."""
    epoch = epoch_of(part.path)
    return Corrupt(
        f"part {part.path} of epoch {'unknown' if epoch is None else epoch} {how}; "
        "put the file back from a backup. Nothing derived from it before is affected: "
        "local state and snapshots of this epoch or later stay valid"
    )


def epoch_of(path: str) -> Epoch | None:
    """Return the epoch in a part's path; None where the part has no rows, or it is no part."""
    found = _PATH.fullmatch(path)
    return None if found is None else Epoch(int(found["epoch"]))


def _epoch_text(rows: pa.Table) -> str:
    if rows.num_rows == 0:
        return _EMPTY
    bounds = pc.min_max(rows.column("epoch")).as_py()
    assert bounds["min"] == bounds["max"] >= 0, f"a part holds epochs {bounds}"
    return f"{bounds['min']:012}"
