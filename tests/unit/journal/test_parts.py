"""The files of parts."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.journal import parquet
from penstock.journal.api import CHANGES, PartKind


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
