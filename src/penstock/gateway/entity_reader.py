"""Reads entities at the newest committed epoch from the state on local disk.

Promises strict reads: a read sees every change whose reply any gateway has returned before, because
it first looks up the newest epoch of the journal and brings the stores to it. It appends nothing.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from penstock.base.ids import EntityKey, Epoch
from penstock.process.data_directory import DataDirectory
from penstock.state.newest import read_newest


class EntityReader:
    """Reads entities for one gateway, in its own thread."""

    def __init__(self, data: Path, app: str) -> None:
        """Name the stores of a data directory; each is opened on its first use."""
        self._thread = ThreadPoolExecutor(1, "penstock-entities")
        self._journal = DataDirectory(data).open_journal_of(app)
        self._stores = DataDirectory(data).open_stores(self._journal)

    async def read(self, keys: Sequence[EntityKey]) -> tuple[Epoch, list[bytes | None]]:
        """Return the newest epoch, and each entity's encoded attributes; None if it does not exist.

        All entities are read at that epoch.

        Raises:
            OperationalError: Journal or state cannot be read.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, keys)

    def close(self) -> None:
        """Close stores and journal."""
        self._thread.submit(self._stores.close)
        self._thread.shutdown()
        self._journal.close()

    def _read(self, keys: Sequence[EntityKey]) -> tuple[Epoch, list[bytes | None]]:
        return read_newest(self._journal, self._stores, keys)
