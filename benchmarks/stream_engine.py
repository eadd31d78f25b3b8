"""Run an application with streams on Spark for `benchmarks.streams`: append atoms, and wait until they are committed.

Figures are of the whole path: the log on a disk, Spark, the journal with its `fsync`. The time begins before the first
append and ends when the last record is committed.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import stream_apps
from penstock import SparkRuntime
from penstock.base.ids import RequestId
from penstock.journal.atoms import AtomReader, decode_atom
from penstock.log.api import Entry
from penstock.model.streams.stream import Stream
from penstock.process.config import Config

WAIT_MS: Final = 600_000
APPENDED: Final = 1_000
"""The most records in one append."""


class Engine:
    """A running application.

    Attributes:
        runtime: Its runtime.
    """

    def __init__(self, runtime: SparkRuntime) -> None:
        self.runtime = runtime
        self._taken = 0

    def take(self, stream: Stream[Any], atoms: Sequence[Sequence[Any]]) -> float:
        """Append atoms; return the seconds until they are committed.

        Raises:
            TimeoutError: They were not committed in time.
        """
        now_us = time.time_ns() // 1_000
        bodies = [self.runtime.app.append(stream.name, events) for events in atoms]
        entries = [
            Entry(RequestId(f"atom-{number}"), body, b"", now_us)
            for number, body in enumerate(bodies, start=self._taken)
        ]
        self._taken += len(entries)
        began = time.perf_counter()
        for first in range(0, len(entries), APPENDED):
            self.runtime.log.append(entries[first : first + APPENDED])
        if not self.runtime.wait_until(self.runtime.log.end(), WAIT_MS):
            raise TimeoutError(f"{len(atoms)} atoms were not committed within {WAIT_MS} ms")
        return time.perf_counter() - began

    def events(self, stream: Stream[Any]) -> list[Any]:
        """Return the events of all atoms of a stream, from the journal."""
        atoms = AtomReader(self.runtime.journal).atoms(stream.name, 0)
        return [stream.events.decode(data) for atom in atoms for data in decode_atom(atom.events)]

    def wait_for_event(self, stream: Stream[Any]) -> float:
        """Return the seconds until a stream has an event that is the result of later records.

        Raises:
            TimeoutError: It has none in time.
        """
        began = time.perf_counter()
        while not self.events(stream):
            self.runtime.check()
            if time.perf_counter() - began > WAIT_MS / 1_000:
                raise TimeoutError(f"stream {stream.name} has no event after {WAIT_MS} ms")
            self.runtime.wait_until(self.runtime.log.end(), WAIT_MS)
            time.sleep(0.02)
        return time.perf_counter() - began


@contextmanager
def engine(name: str, data: Path, cores: int) -> Iterator[Engine]:
    """Run an application of `stream_apps` on Spark.

    Args:
        name: The name of its variable.
        data: The data directory.
        cores: The cores, and the partitions.
    """
    config = Config(data, cores=cores, partitions=cores)
    runtime = SparkRuntime(f"{stream_apps.__file__}:{name}", config)
    try:
        runtime.start()
        yield Engine(runtime)
    finally:
        runtime.stop()
