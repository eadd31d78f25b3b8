"""Later records of kept epochs that a branch must still run.

A cascade appends records to the log, such as the rest of a cut cascade. An epoch that appends a record and the epoch
that processes it can differ. A branch that ends between them has the first epoch, and its log does not have the
record. So the record is appended to the branch's log again; otherwise the cascade would never end there.
"""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import Epoch, RequestId
from penstock.journal.api import Commit, Journal, PartKind
from penstock.log.api import Entry, Log


class OpenRecord(msgspec.Struct, frozen=True):
    """A record that an epoch has appended, and that no epoch up to the end of the branch has processed."""

    request_id: RequestId
    body: bytes
    time_us: int
    delay_us: int


def open_records(journal: Journal, last: Commit) -> list[OpenRecord]:
    """Return the open records of the epochs up to a commit, in the order of their epochs.

    Raises:
        Corrupt: A part of the journal is damaged.
    """
    names = ("request_id", "request", "time_us", "delay_us")
    before = Epoch(journal.first() - 1)
    appended = [
        rows
        for _, rows in journal.rows(PartKind.APPENDS, before, last.epoch, names)
        if rows.num_rows
    ]
    if not appended:
        return []
    table = pa.concat_tables(appended)
    for _, rows in journal.rows(PartKind.TRANSACTIONS, before, last.epoch, ("request_id",)):
        processed = pc.is_in(table["request_id"], rows["request_id"].combine_chunks())
        table = table.filter(pc.invert(processed))
    columns = (table[name].to_pylist() for name in names)
    return [OpenRecord(*row) for row in zip(*columns, strict=True)]


def append_open(log: Log, records: Sequence[OpenRecord]) -> None:
    """Append records to a log that does not know them yet, or schedule them.

    Raises:
        LogUnavailable: The disk is full or fails.
    """
    for record in records:
        entry = Entry(record.request_id, record.body, b"", record.time_us)
        if log.find(record.request_id) is None and log.scheduled(record.request_id) is None:
            if record.delay_us:
                log.schedule(entry, record.time_us + record.delay_us, limited=False)
            else:
                log.append([entry], limited=False)
