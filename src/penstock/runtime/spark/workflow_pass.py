"""The second pass of an epoch: one task runs the workflow steps of all its records, in order.

The first pass has run the requests of the records, on several tasks. The second pass reads the atoms that they
have published, and their replies, from the round outputs. Tasks of workflows are rows that no request reads or
writes, so the second pass begins with the state before the epoch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.engine.streams.cascade import Cascade, PublishedAtom, cascade_of
from penstock.engine.streams.derived_ids import MARK
from penstock.journal.api import PartKind
from penstock.log.api import Record
from penstock.model.request import Failure, decode_failure
from penstock.runtime.spark.cascade_rows import atoms_of
from penstock.runtime.spark.rows import Tables

_COLUMNS = ("position", "partition", "lsn", "request_id", "request", "time_us", "error", "reply")


class ProcessedRecord(NamedTuple):
    """A record whose requests have run, and whose workflow steps are next.

    Attributes:
        position: Its position in the epoch.
        partition: Its partition of the log.
        record: The record.
        failure: The failure of its request; None if it took effect.
        reply: The result of its request.
        cascade: Its cascade, with the atoms of its requests.
    """

    position: int
    partition: LogPartition
    record: Record
    failure: Failure | None
    reply: bytes
    cascade: Cascade


def processed_records(outputs: Sequence[Tables]) -> Iterator[ProcessedRecord]:
    """Yield the records that may have workflow steps, in order.

    Args:
        outputs: The valid rows of the round outputs of all tasks.
    """
    published: dict[int, list[PublishedAtom]] = {}
    for output in outputs:
        if PartKind.EVENTS in output:
            for position, atom in atoms_of(output[PartKind.EVENTS]):
                published.setdefault(position, []).append(atom)
    transactions = pa.concat_tables(
        output[PartKind.TRANSACTIONS] for output in outputs if PartKind.TRANSACTIONS in output
    )
    emitting = pc.is_in(transactions["position"], pa.array(published, pa.uint32()))
    derived = pc.match_substring(transactions["request_id"], MARK)
    rows = transactions.filter(pc.or_(emitting, derived)).select(_COLUMNS).sort_by("position")
    for position, partition, lsn, request_id, body, time_us, error, reply in zip(
        *(column.to_pylist() for column in rows.columns), strict=True
    ):
        cascade = cascade_of(RequestId(request_id), body, time_us)
        cascade.published = published.get(position, [])
        yield ProcessedRecord(
            position,
            LogPartition(partition),
            Record(Lsn(lsn), RequestId(request_id), body, time_us),
            None if error is None else decode_failure(reply),
            reply,
            cascade,
        )
