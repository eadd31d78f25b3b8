"""Staged rows: the rows of an import, in files next to the log, from the order to the commit of its epoch.

A file is a Parquet table of keys and states, and its name is the SHA-256 of its bytes. The control record names the files, so
a record of a few hundred bytes brings millions of rows to their place in the order. The epoch of the record has the rows
as changes of the journal; from then on no reader needs the files, and maintenance removes them.
"""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import Corrupt
from penstock.files.durable import storage
from penstock.files.layout import IMPORTS
from penstock.files.roots import shared_root

ROWS: Final = pa.schema([pa.field("key", pa.string()), pa.field("state", pa.binary())])
"""The text of the key, and the state, of each entity."""

_SUFFIX: Final = ".parquet"


class StagedRows:
    """The staged rows of one data directory."""

    def __init__(self, data: Path) -> None:
        """Name the data directory; nothing is read yet."""
        self._root = shared_root(data)

    def put(self, texts: Sequence[str], states: Sequence[bytes], order: str) -> str:
        """Store some rows durably; return the name of their file, which only the same rows of the same order have.

        Args:
            order: The id of the order, so that the end of one order removes no file of another one.

        Raises:
            OperationalError: The disk is full or fails.
        """
        columns = [pa.array(texts, pa.string()), pa.array(states, pa.binary())]
        rows = pa.table(columns, schema=ROWS.with_metadata({"order": order}))
        sink = pa.BufferOutputStream()
        options = {"use_dictionary": False, "write_statistics": False, "store_schema": True}
        pq.write_table(rows, sink, compression="zstd", compression_level=1, **options)
        data: bytes = sink.getvalue().to_pybytes()
        name = hashlib.sha256(data).hexdigest()
        with storage("write the rows of an import"):
            self._root.make_folders(IMPORTS)
            self._root.replace(file_of(name), data)
        return name

    def read(self, name: str) -> pa.Table:
        """Return the rows of a file, as `ROWS`.

        Raises:
            Corrupt: The file is missing, or was changed.
            OperationalError: It cannot be read.
        """
        path = f"{self._root}/{file_of(name)}"
        with storage("read the rows of an import"):
            try:
                data = self._root.get(file_of(name))
            except FileNotFoundError as error:
                raise Corrupt(f"{path} is missing; put the file back from a backup") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise Corrupt(f"{path} was changed; put the file back from a backup")
        rows = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
        return rows.replace_schema_metadata(None).cast(ROWS)

    def remove(self, names: Collection[str]) -> None:
        """Remove files that no reader needs any more; a file that is gone is passed over.

        Raises:
            OSError: The disk fails.
        """
        for name in names:
            self._root.remove(file_of(name))
        if names:
            self._root.settle(IMPORTS)

    def names(self) -> list[str]:
        """Return the names of all files."""
        every = self._root.names(IMPORTS)
        return sorted(each.removesuffix(_SUFFIX) for each in every if each.endswith(_SUFFIX))

    def remove_others(self, needed: Collection[str], grace_s: float = 0.0) -> int:
        """Remove the files that are not in `needed`, and return their number.

        Args:
            grace_s: A file that was stored within these seconds stays, too: its record may be on its way.

        Raises:
            OSError: The disk fails.
        """
        count = 0
        for file in list(self._root.names(IMPORTS)):
            if _SUFFIX not in file or file.removesuffix(_SUFFIX) in needed:
                continue
            if self._root.age_s(f"{IMPORTS}/{file}") >= grace_s:
                self._root.remove(f"{IMPORTS}/{file}")
                count += 1
        if count:
            self._root.settle(IMPORTS)
        return count


def file_of(name: str) -> str:
    """Return the name of a file in the shared root."""
    return f"{IMPORTS}/{name}{_SUFFIX}"
