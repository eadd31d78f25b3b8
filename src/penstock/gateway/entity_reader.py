"""Entities as they are at the newest committed epoch, read from the state on local disk.

Promises strictness: what is read holds every change whose reply anybody was given before, through
whichever gateway, because the journal is asked for its newest epoch first and the stores are
brought to it. Nothing is appended, and no epoch runs.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Corrupt, PenstockError, StateUnavailable
from penstock.process.data_directory import DataDirectory

ATTEMPTS: Final = 20
"""A driver that goes on while this one reads may be an epoch further each time."""


class EntityReader:
    """Reads entities for one gateway, in a thread of its own."""

    def __init__(self, data: Path, app: str, partitions: int) -> None:
        """Name the stores; each is opened when it is first needed."""
        self._thread = ThreadPoolExecutor(1, "penstock-entities")
        self._journal = DataDirectory(data).open_journal_of(app)
        self._stores = DataDirectory(data).open_stores(self._journal, partitions)

    async def read(self, key: EntityKey) -> tuple[Epoch, bytes | None]:
        """Return the newest epoch and the entity's encoded attributes; None where it is not.

        Raises:
            OperationalError: Journal or state cannot be read.
            IntegrityError: The journal is damaged.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, key)

    def close(self) -> None:
        """Release everything."""
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
            except StateUnavailable as error:  # most often: a driver has gone on meanwhile
                failure = error
            except Corrupt as error:
                failure = error
                self._stores.rebuild(self._stores.partition_of(key), str(error))
        raise StateUnavailable("no epoch could be read") from failure
