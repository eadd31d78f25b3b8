"""The second pass of an epoch: one task runs the workflow steps of all its records, in order.

The first pass runs the requests of the records. The second pass takes the atoms that they have published, and their
replies. Where several tasks run the requests, they come from the round outputs. Where one task runs them, they come
from its relay, at the same time (`step_relay`). Tasks of workflows are rows that no request reads or writes, so the
second pass begins with the state before the epoch.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import LogPartition, Lsn, RequestId
from penstock.engine.streams.cascade import PublishedAtom, cascade_of
from penstock.engine.streams.derived_ids import MARK
from penstock.engine.task import Task
from penstock.journal.api import PartKind
from penstock.log.api import Record
from penstock.model.request import NOT_CUT, Cut, cut_of, decode_failure
from penstock.runtime.spark.cascade_rows import atoms_of
from penstock.runtime.spark.quarantine import STEPS_OF, Quarantine
from penstock.runtime.spark.rows import RoundRows, Tables
from penstock.runtime.spark.step_relay import ProcessedRecord

_COLUMNS: Final = (
    "position",
    "partition",
    "lsn",
    "request_id",
    "request",
    "time_us",
    "error",
    "reply",
)


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
    cuts = _cuts(outputs)
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
        cascade.cut = cuts.get(position, NOT_CUT)
        yield ProcessedRecord(
            position,
            LogPartition(partition),
            Record(Lsn(lsn), RequestId(request_id), body, time_us),
            None if error is None else decode_failure(reply),
            reply,
            cascade,
        )


def _cuts(outputs: Sequence[Tables]) -> dict[int, Cut]:
    """Return where the requests of cascades were cut, by the positions of their records."""
    later = [output[PartKind.APPENDS] for output in outputs if PartKind.APPENDS in output]
    return {
        position: cut
        for rows in later
        for position, body in zip(
            rows["position"].to_pylist(), rows["request"].to_pylist(), strict=True
        )
        if (cut := cut_of(body)) != NOT_CUT
    }


def note_parts(task: Task, quarantine: Quarantine) -> None:
    """Let a task note each sent request and each workflow step before it runs, and refuse those that kill."""
    cascades = task.cascades
    if cascades is not None:
        cascades.before_request = quarantine.refusal_of_request
        cascades.before_step = quarantine.refusal_of_step


def run_steps(task: Task, rows: RoundRows, quarantine: Quarantine, work: ProcessedRecord) -> int:
    """Run the workflow steps of one record; note its position before they run.

    Args:
        quarantine: Takes the notes.

    Returns:
        The bytes of the results.
    """
    assert task.cascades is not None, "the application has streams"
    began = time.perf_counter()
    position = work.position
    quarantine.now[0] = position + STEPS_OF
    task.run_steps(work.cascade, work.failure, work.reply)
    if quarantine.careful:
        quarantine.measure()
    rows.wrote(position, task.wrote)
    size = rows.cascades.add(position, work.partition, work.record, work.cascade)
    rows.steps_s += time.perf_counter() - began
    return size
