"""The files of parts."""

import secrets
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import Corrupt
from penstock.journal import parquet
from penstock.journal.api import CHANGES, PartKind
from penstock.journal.delta import SMALL_PART_BYTES, DeltaJournal, SmallParts
from penstock.journal.parquet import joined


@pytest.mark.parametrize(("size", "compression"), [(1, "UNCOMPRESSED"), (8_000, "ZSTD")])
def test_part_of_a_block_is_not_compressed(size: int, compression: str) -> None:
    """The rows that are read are those that were written, compressed or not."""
    row = {"epoch": 7, "entity": "Item", "key": "i1", "state": b"s" * size}
    rows = pa.Table.from_pylist([row, {**row, "key": "i2", "state": None}], CHANGES)
    part, data = parquet.encode(PartKind.CHANGES, rows, "0-0")
    columns = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    used = {columns.column(index).compression for index in range(columns.num_columns)}
    assert used == {compression}
    assert parquet.decode(part, bytes(data), None) == rows


def test_reader_of_history_opens_a_small_part_once(tmp_path: Path) -> None:
    """A small part is kept with all its columns, and a large one is not; each byte is checked at the first read."""
    journal = DeltaJournal(tmp_path, "shop")
    rows = pa.table([[0], ["Item"], ["i1"], [b"state"]], schema=CHANGES)
    large = pa.table([[0], ["Item"], ["i2"], [secrets.token_bytes(SMALL_PART_BYTES)]], CHANGES)
    part, large_part = (journal.write(PartKind.CHANGES, each, "task0") for each in (rows, large))
    reader = DeltaJournal(tmp_path, "shop")
    reader.small_parts = SmallParts()
    assert reader.read(part, ["key"]).equals(rows.select(["key"]))
    assert reader.read(large_part, ["key"]).equals(large.select(["key"]))
    for each in (part, large_part):
        (tmp_path / each.path).unlink()
    assert reader.read(part).equals(rows)
    assert reader.read(part, ["state", "key"]).equals(rows.select(["state", "key"]))
    with pytest.raises(Corrupt):
        reader.read(large_part)


def test_small_tables_are_joined() -> None:
    """The rows keep their order, and each table but the last has enough of them."""
    tables = [pa.table({"n": list(range(at, at + 3))}) for at in range(0, 30, 3)]
    assert [each["n"].to_pylist() for each in joined(tables, 8)] == [
        list(range(9)),
        list(range(9, 18)),
        list(range(18, 27)),
        list(range(27, 30)),
    ]
    assert list(joined([], 8)) == []
