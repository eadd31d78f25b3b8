"""Publishing: the valid rows of an epoch become parts of the journal."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.failure import REPEATABLE
from penstock.engine.streams.derived_ids import MARK, OF_NO_REQUEST
from penstock.journal.api import Journal, PartKind
from penstock.process.fault import Fault
from penstock.runtime.spark.cascade_columns import atom_counts, event_counts
from penstock.runtime.spark.messages import TaskResult
from penstock.runtime.spark.rows import Tables, lines_of, merge, roots_of

_REPEATABLE: Final = pa.array(sorted(REPEATABLE))


def publish(
    journal: Journal, fault: Fault, outputs: Sequence[Tables], name: str, *, with_steps: bool
) -> TaskResult:
    """Write the parts of a task.

    Args:
        with_steps: Whether the workflow steps have run. Otherwise the second pass writes the atoms.

    Returns:
        The result of the task, with the parts and what they contain.
    """
    if not outputs:
        return TaskResult()
    merged = merge(outputs)
    if not with_steps:
        merged.pop(PartKind.EVENTS, None)
    filled = {part_kind: table for part_kind, table in merged.items() if table.num_rows}
    parts = journal.write_all(filled, name) if filled else []
    for _ in parts:
        fault.reached("between-parts")
    transactions, sent, events = (
        merged.get(part_kind)
        for part_kind in (PartKind.TRANSACTIONS, PartKind.SENT, PartKind.EVENTS)
    )
    errors = None if transactions is None else transactions["error"]
    return TaskResult(
        parts=parts,
        aborts=0 if errors is None else len(errors) - errors.null_count,
        failed=_failed_in_background(transactions) + _failed_in_background(sent),
        atoms={} if events is None else atom_counts(events),
        events={} if events is None else event_counts(events),
        roots=roots_of(outputs),
        lines=lines_of(outputs),
    )


def _failed_in_background(requests: pa.Table | None) -> int:
    """Count the requests with derived ids, for which no caller waits, whose failure no application has declared."""
    if requests is None or requests["error"].null_count == len(requests):
        return 0
    ids = requests.filter(pc.is_in(requests["error"], _REPEATABLE))["request_id"]
    counted = pc.and_(
        pc.match_substring(ids, MARK), pc.invert(pc.match_substring_regex(ids, OF_NO_REQUEST))
    )
    return int(pc.sum(counted).as_py() or 0)
