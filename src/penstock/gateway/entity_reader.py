"""Reads entities at the newest committed epoch from the state on local disk.

Promises strict reads: a read sees every change whose reply any gateway has returned before, because
it first looks up the newest epoch of the journal and brings the stores to it. It appends nothing.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt, PenstockError, StateUnavailable
from penstock.process.data_directory import DataDirectory

ATTEMPTS: Final = 20
"""A read is repeated if a driver commits the next epoch meanwhile; at most this often."""


class EntityReader:
    """Reads entities for one gateway, in its own thread."""

    def __init__(self, data: Path, app: str, partitions: int) -> None:
        """Name the stores of a data directory; each is opened on its first use."""
        self._thread = ThreadPoolExecutor(1, "penstock-entities")
        self._journal = DataDirectory(data).open_journal_of(app)
        self._stores = DataDirectory(data).open_stores(self._journal, partitions)

    async def read(self, key: EntityKey) -> tuple[Epoch, bytes | None]:
        """Return the newest epoch and the encoded attributes; None if the entity does not exist.

        Raises:
            OperationalError: Journal or state cannot be read.
            IntegrityError: The journal is damaged.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, key)

    def close(self) -> None:
        """Close stores and journal."""
        self._thread.submit(self._stores.close)
        self._thread.shutdown()
        self._journal.close()

    def _read(self, key: EntityKey) -> tuple[Epoch, bytes | None]:
        failure: PenstockError | None = None
        for _ in range(ATTEMPTS):
            last = self._journal.last()
            if last is None:
                return BEFORE_FIRST, None
            try:
                with self._stores.at(last.epoch) as reader:
                    return last.epoch, reader.get(key)
            except StateUnavailable as error:  # usually a driver has committed meanwhile
                failure = error
            except Corrupt as error:
                failure = error
                self._stores.rebuild(self._stores.partition_of(key), str(error))
        raise StateUnavailable("no epoch could be read") from failure
