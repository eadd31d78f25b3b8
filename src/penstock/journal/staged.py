"""Staged rows: rows of an import or of new indexes, in files next to the log, from the order to the commit of their epoch.

A file is a Parquet table, and its name is the SHA-256 of its bytes. The control record names the files, so
a record of a few hundred bytes brings millions of rows to their place in the order. The epoch of the record has the rows
as changes of the journal; from then on no reader needs the files, and maintenance removes them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.files.durable import storage
from penstock.files.hashed_files import HashedFiles
from penstock.files.layout import IMPORTS
from penstock.files.roots import shared_root

ROWS: Final = pa.schema([pa.field("key", pa.string()), pa.field("state", pa.binary())])
"""The text of the key, and the state, of each entity."""

_SUFFIX: Final = ".parquet"


class StagedRows(HashedFiles):
    """The staged rows of one data directory."""

    def __init__(self, data: Path) -> None:
        super().__init__(shared_root(data), IMPORTS, _SUFFIX)

    def stage(self, texts: Sequence[str], states: Sequence[bytes | None], order: str) -> str:
        """Store some rows durably; return the name of their file, which only the same rows of the same order have.

        Args:
            order: The id of the order, so that the end of one order removes no file of another one.

        Raises:
            OperationalError: The disk is full or fails.
        """
        columns = [pa.array(texts, pa.string()), pa.array(states, pa.binary())]
        return self.stage_table(pa.table(columns, schema=ROWS), order, "an import")

    def stage_table(self, rows: pa.Table, order: str, what: str) -> str:
        """Store a table durably; see `stage`.

        Args:
            what: The order, for the message of an error.
        """
        sink = pa.BufferOutputStream()
        options = {"use_dictionary": False, "write_statistics": False, "store_schema": True}
        marked = rows.replace_schema_metadata({"order": order})
        pq.write_table(marked, sink, compression="zstd", compression_level=1, **options)
        data: bytes = sink.getvalue().to_pybytes()
        with storage(f"write the rows of {what}"):
            return self.put(data)

    def rows(self, name: str) -> pa.Table:
        """Return the rows of a file, as `ROWS`.

        Raises:
            Corrupt, OperationalError: See `read`.
        """
        return self.table(name).cast(ROWS)

    def table(self, name: str) -> pa.Table:
        """Return the table of a file; raises as `rows`."""
        source = pa.BufferReader(self.read(name))
        rows = pq.ParquetFile(source, pre_buffer=False).read(use_threads=False)
        return rows.replace_schema_metadata(None)


def file_of(name: str) -> str:
    """Return the name of a file in the shared root."""
    return f"{IMPORTS}/{name}{_SUFFIX}"
