"""Run an application with streams on Spark for `benchmarks.streams`: append atoms, and wait until they are committed.

Figures are of the whole path: the log on a disk, Spark, the journal with its `fsync`. The time begins before the first
append and ends when the last record is committed.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock import SparkRuntime
from penstock.base.ids import BEFORE_FIRST, RequestId
from penstock.journal.api import PartKind
from penstock.journal.atoms import AtomReader, decode_atom
from penstock.log.api import Entry
from penstock.model.streams.flow import Workflow
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
        self._events: Counter[str] = Counter()  # of each stream, as the driver reports them
        runtime.on_epoch.append(lambda report: self._events.update(report.events))

    def take(self, stream: Stream[Any], atoms: Sequence[Sequence[Any]]) -> float:
        """Append atoms; return the seconds until they are committed, and raise as `run`."""
        return self.run([(self.runtime.app.append(stream.name, events), b"") for events in atoms])

    def run(self, requests: Sequence[tuple[bytes, bytes]]) -> float:
        """Append requests; return the seconds until they are committed.

        Args:
            requests: Their bodies and access hints.

        Raises:
            TimeoutError: They were not committed in time.
        """
        now_us = time.time_ns() // 1_000
        entries = [
            Entry(RequestId(f"request-{number}"), body, hint, now_us)
            for number, (body, hint) in enumerate(requests, start=self._taken)
        ]
        self._taken += len(entries)
        began = time.perf_counter()
        for first in range(0, len(entries), APPENDED):
            self.runtime.log.append(entries[first : first + APPENDED])
        if not self.runtime.wait_until(self.runtime.log.end(), WAIT_MS):
            raise TimeoutError(f"{len(entries)} requests were not committed within {WAIT_MS} ms")
        return time.perf_counter() - began

    def replies(self, count: int) -> list[Any]:
        """Return the replies to the last requests, in the order of the log; an error is its code."""
        rows = [
            row
            for commit in self.runtime.journal.commits(BEFORE_FIRST)
            for part in commit.parts_of(PartKind.TRANSACTIONS)
            for row in self.runtime.journal.read(part, ("lsn", "error", "reply")).to_pylist()
        ]
        last = sorted(rows, key=itemgetter("lsn"))[-count:]
        return [row["error"] or msgspec.msgpack.decode(row["reply"]) for row in last]

    def events(self, stream: Stream[Any]) -> list[Any]:
        """Return the events of all atoms of a stream, from the journal."""
        atoms = AtomReader(self.runtime.journal).atoms(stream.name, 0)
        return [stream.events.decode(data) for atom in atoms for data in decode_atom(atom.events)]

    def wait_for_result(self, workflow: Workflow[Any]) -> float:
        """Return the seconds until a workflow has published an event, or set an atom aside.

        Later records of the log publish it, so the log grows meanwhile. The wait reads no journal, because that would
        take a core from the application.

        Raises:
            TimeoutError: There is neither in time.
        """
        began = time.perf_counter()
        while not (self._events[workflow.name] or self._events[workflow.failed.name]):
            self.runtime.check()
            if time.perf_counter() - began > WAIT_MS / 1_000:
                raise TimeoutError(f"workflow {workflow.flow_name} has no event after {WAIT_MS} ms")
            time.sleep(0.02)
        return time.perf_counter() - began


@contextmanager
def engine(spec: str, data: Path, cores: int) -> Iterator[Engine]:
    """Run an application on Spark.

    Args:
        spec: The application, as for `penstock run`.
        data: The data directory.
        cores: The cores, and the partitions.
    """
    config = Config(data, cores=cores, partitions=cores)
    runtime = SparkRuntime(spec, config)
    try:
        runtime.start()
        yield Engine(runtime)
    finally:
        runtime.stop()
