"""The ranges of the embedded log's file: where a range of limited records and bytes ends.

A range never mixes a control record with other records. The caller supplies the transaction.
"""

import sqlite3
from itertools import accumulate
from typing import Final

from penstock.base.ids import Lsn
from penstock.log import block as blocks
from penstock.log.block import Block

OVERLAPPING: Final = (
    "FROM block WHERE first < :end AND first >= "
    "(SELECT coalesce(max(first), 0) FROM block WHERE first <= :start) ORDER BY first"
)
"""Selects the blocks that overlap [start, end)."""


def end_of_range(connection: sqlite3.Connection, start: Lsn, end: Lsn, size: int, file: str) -> Lsn:
    """Return the greatest end, up to `end`, of a range from `start`; see `Log.limit`.

    Args:
        start: The first record.
        end: The end that the number of records allows.
        size: The most bytes of bodies.

    Raises:
        Corrupt: A block is damaged.
    """
    reach = start
    rows = connection.execute(f"SELECT * {OVERLAPPING}", {"start": start, "end": end})
    for block in map(Block._make, rows):
        blocks.verify(block, file)
        end = _before_control(block, start, end)
        sizes = blocks.body_sizes_of(block)[max(start - block.first, 0) : end - block.first]
        totals = [total for total in accumulate(sizes) if total <= size]
        reach = Lsn(reach + len(totals))
        if len(totals) < len(sizes) or reach >= end:
            break
        size -= totals[-1]
    return max(reach, min(Lsn(start + 1), end), start)


def controls(connection: sqlite3.Connection, start: Lsn, end: Lsn) -> list[Lsn]:
    """Return the positions of the control records in [start, end); see `Log.controls`."""
    rows = connection.execute(f"SELECT first, shape {OVERLAPPING}", {"start": start, "end": end})
    return [
        lsn
        for first, shape in rows
        for lsn in blocks.controls_of(first, shape)
        if start <= lsn < end
    ]


def _before_control(block: Block, start: Lsn, end: Lsn) -> Lsn:
    """Return the end of a range from `start` that keeps control records apart."""
    for lsn in blocks.controls_of(block.first, block.shape):
        if lsn >= start:
            return min(end, Lsn(max(lsn, start + 1)))
    return end
