"""Later records: the requests that the cascades of an epoch append to the log, each exactly once.

They are rows of the epoch, so they exist when its commit is durable. They are appended before the next epoch is
committed, so only those of the newest epoch can be missing in the log, and they can only be behind its positions.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

from penstock.base.ids import Lsn, RequestId
from penstock.journal.api import Commit, Journal, PartKind
from penstock.log.api import Entry, Log

_BATCH: Final = 10_000
"""Records of the log that are looked at together."""


class LaterRecords:
    """Appends the later records of the newest epoch."""

    def __init__(
        self,
        log: Log,
        journal: Journal,
        last: Commit | None,
        retention_s: int,
        fill: Callable[[bytes], bytes],
    ) -> None:
        """Begin after the newest epoch, whose records an earlier driver may have appended already.

        Args:
            log: The log.
            journal: The journal.
            last: The newest commit.
            retention_s: How long the log knows an id after its append.
            fill: Returns the body that the log takes, for the body in the journal.
        """
        self._log = log
        self._journal = journal
        self._retention_us = retention_s * 1_000_000
        self._fill = fill
        self._owed: Commit | None = None
        if last is not None:
            self.owe(last)

    def owe(self, commit: Commit) -> None:
        """Name the newest epoch; `append` appends its records."""
        self._owed = commit if commit.parts_of(PartKind.APPENDS) else None

    def append(self) -> None:
        """Append the records that are owed.

        Raises:
            OperationalError: The log or the journal fails; the next call tries again.
        """
        commit = self._owed
        if commit is None:
            return
        at_once: dict[RequestId, Entry] = {}
        known = self._known(commit)
        now_us = time.time_ns() // 1_000
        for request_id, body, time_us, delay_us in self._rows(commit):
            if request_id in known:
                continue
            if delay_us:
                entry = Entry(request_id, body, b"", time_us)
                self._log.schedule(entry, time_us + delay_us, limited=False)
            else:
                whole = self._fill(body)
                # An earlier driver may have filled it with other atoms, before retention removed some.
                if whole is not body and self._log.find(request_id) is not None:
                    continue
                at_once[request_id] = Entry(request_id, whole, b"", max(now_us, time_us))
        if at_once:
            self._log.append(list(at_once.values()), limited=False)
        self._owed = None

    def _rows(self, commit: Commit) -> Iterator[tuple[RequestId, bytes, int, int]]:
        """Yield id, body, time and delay of the records, in the order of the records that caused them."""
        names = ("request_id", "request", "time_us", "delay_us")
        parts = [
            self._journal.read(part, ("lsn", *names)) for part in commit.parts_of(PartKind.APPENDS)
        ]
        rows = pa.concat_tables(parts).sort_by("lsn")
        for request_id, *rest in zip(*(rows[name].to_pylist() for name in names), strict=True):
            yield RequestId(request_id), *rest

    def _known(self, commit: Commit) -> set[RequestId]:
        """Return the ids behind the positions of a commit that is so old that the log may have forgotten them."""
        if commit.time_us + self._retention_us > time.time_ns() // 1_000:
            return set()
        known: set[RequestId] = set()
        for partition, position in commit.positions.items():
            start, end = position, self._log.end(partition)
            while start < end:
                upto = Lsn(min(start + _BATCH, end))
                known |= {record.request_id for record in self._log.read(start, upto, partition)}
                start = upto
        return known
