"""Penstock's own tables as they were after an epoch: the newest requests and replies, the epochs.

Promises rows in log order, and no more of them than a view keeps. Leaves to `table` what is in them.
"""

from collections.abc import Callable

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.journal.api import TRANSACTIONS, Journal, PartKind

_ORDER = [("epoch", "ascending"), ("lsn", "ascending"), ("partition", "ascending")]
_SPAN = 64
"""Epochs that are read first, going back from the last; then twice as many, and so on."""


def recent_transactions(
    journal: Journal, epoch: Epoch, most: int, check: Callable[[], None]
) -> pa.Table:
    """Return the newest transactions, at most so many, of the epochs that are held up to one.

    `check` is called now and then, and may end it by an error.

    Raises:
        Corrupt: The journal is damaged.
    """
    found: list[pa.Table] = [TRANSACTIONS.empty_table()]
    first, upto, span, count = journal.first(), epoch, _SPAN, 0
    while upto >= first and count < most:
        after = Epoch(max(first - 1, upto - span))
        for _, rows in journal.rows(PartKind.TRANSACTIONS, after, upto, TRANSACTIONS.names):
            check()
            found.append(rows)
            count += rows.num_rows
        upto, span = after, 2 * span
    table = pa.concat_tables(found).sort_by(_ORDER)
    return table.slice(max(0, table.num_rows - most))


def epochs_upto(
    journal: Journal, epoch: Epoch, check: Callable[[], None]
) -> list[tuple[int, int, int]]:
    """Return number, time in microseconds and requests of the epochs that are held up to one.

    Raises:
        Corrupt: The journal is damaged.
    """
    found: list[tuple[int, int, int]] = []
    for commit in journal.commits(Epoch(journal.first() - 1), epoch):
        check()
        records = sum(part.rows for part in commit.parts_of(PartKind.TRANSACTIONS))
        found.append((commit.epoch, commit.time_us, records))
    return found
