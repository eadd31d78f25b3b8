"""The processed requests of epochs, for the tables `requests` and `replies`.

A request that a handler has sent runs in the cascade of a log record. Its row has the position of that record, and
`parent`, the id of the record's request; a request from the log has no parent.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.journal.api import TRANSACTIONS, Journal, PartKind

REQUESTS: Final = TRANSACTIONS.append(pa.field("parent", pa.string()))
"""The rows of processed requests."""

_ORDER: Final = [("epoch", "ascending"), ("lsn", "ascending"), ("partition", "ascending")]


def joined(transactions: Sequence[pa.Table], sent: Sequence[pa.Table]) -> pa.Table:
    """Return the requests of epochs as `REQUESTS`, in the order of the log.

    A sent request follows the request of its record, in the order in which they ran.

    Args:
        transactions: The journal's rows of the kind `transactions`.
        sent: The journal's rows of the kind `sent`, of the same epochs, in the order of each cascade.
    """
    records = pa.concat_tables([TRANSACTIONS.empty_table(), *transactions])
    requests = records.append_column(REQUESTS.field("parent"), pa.nulls(len(records), pa.string()))
    if any(table.num_rows for table in sent):
        table = pa.concat_tables(sent)
        roots = dict(zip(_positions(records), records["request_id"].to_pylist(), strict=True))
        parents = pa.array([roots.get(position) for position in _positions(table)], pa.string())
        requests = pa.concat_tables(
            [requests, table.append_column(REQUESTS.field("parent"), parents)]
        )
    return requests.sort_by(_ORDER)


def read_requests(
    journal: Journal, after: Epoch, upto: Epoch
) -> Iterator[tuple[PartKind, pa.Table]]:
    """Yield the rows of the epochs of (after, upto] that `joined` takes, each table with its kind."""
    for part_kind in (PartKind.TRANSACTIONS, PartKind.SENT):
        for _, rows in journal.rows(part_kind, after, upto, TRANSACTIONS.names):
            yield part_kind, rows


def _positions(rows: pa.Table) -> Iterator[tuple[int, int, int]]:
    names = ("epoch", "partition", "lsn")
    return zip(*(rows[name].to_pylist() for name in names), strict=True)
