"""Batches: the changes of consecutive epochs as one step, in which the last writer of a key wins.

A batch ends with the epoch in which it reaches a limit, so that a view that lags far behind needs
bounded memory. The changes of a large epoch, such as an import of millions of entities, may be read while they are applied.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa

from penstock.base.ids import Epoch
from penstock.journal.api import TRANSACTIONS, Commit, Journal, PartKind

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


ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20

EntityStates = dict[str, bytes | None]
"""The key's text to the state; None is a deleted entity."""

EVERYTHING: Final = frozenset(PartKind) - {PartKind.APPENDS}
"""The kinds of rows that the SQL view shows."""


@dataclass(slots=True)
class ChangeBatch:
    """The changes of consecutive epochs.

    Attributes:
        epoch: The last epoch.
        changes: The last state of each changed key, by class name, but for those of a large epoch at the end; see `steps`.
        large: Read the changes of a large epoch, a part each.
        transactions: The journal's rows of requests from the log, in order.
        sent: The journal's rows of sent requests, in order.
        events: The rows of the atoms, in the order of epochs.
        epochs: The number, the commit time in microseconds and the number of requests of each epoch.
        kinds: The kinds of rows that the batch takes.
        rows: The number of changes, transactions and atoms.
        size: Their bytes.
        rows_max: The number of rows with which it is full.
        in_steps: Whether to read the changes of an epoch with more rows in `steps` alone.
    """

    epoch: Epoch
    kinds: frozenset[PartKind] = EVERYTHING
    changes: dict[str, EntityStates] = field(default_factory=lambda: defaultdict(dict))
    large: list[Callable[[], pa.Table]] = field(default_factory=list)
    transactions: list[pa.Table] = field(default_factory=list)
    sent: list[pa.Table] = field(default_factory=list)
    events: list[pa.Table] = field(default_factory=list)
    epochs: list[tuple[int, int, int]] = field(default_factory=list)
    rows: int = 0
    size: int = 0
    rows_max: int = ROWS_MAX
    in_steps: bool = False

    def take(self, journal: Journal, commit: Commit) -> None:
        """Add the next epoch."""
        assert commit.epoch == self.epoch + 1, f"epoch {commit.epoch} after {self.epoch}"
        records = 0
        changed = sum(part.rows for part in commit.parts if part.kind is PartKind.CHANGES)
        is_large = self.in_steps and changed > self.rows_max  # then it fills the batch
        for part in commit.parts:
            if part.kind not in self.kinds:
                continue
            if part.kind is PartKind.CHANGES and is_large:
                self.large.append(partial(journal.read, part))
                self.rows += part.rows
                continue
            rows = journal.read(part)
            self.rows += rows.num_rows
            self.size += rows.get_total_buffer_size()
            if part.kind is PartKind.CHANGES:
                self._update(rows)
            elif part.kind is PartKind.EVENTS:
                self.events.append(rows)
            elif part.kind is PartKind.SENT:
                self.sent.append(rows)
            else:
                records += rows.num_rows
                self.transactions.append(rows)
        self.epochs.append((commit.epoch, commit.time_us, records))
        self.epoch = commit.epoch

    @property
    def full(self) -> bool:
        """Whether the batch has reached a limit."""
        return self.rows >= self.rows_max or self.size >= BYTES_MAX

    def newest_requests(self, most: int) -> pa.Table:
        """Return the last `most` processed requests, as `REQUESTS`, by epoch and log position."""
        requests = joined(self.transactions, self.sent)
        return requests.slice(max(0, requests.num_rows - most))

    def steps(self) -> Iterator[Mapping[str, EntityStates]]:
        """Yield all changes, in steps that follow each other; the last state of a key counts."""
        yield self.changes
        for read in self.large:
            rows = read()
            # As many rows as a batch has at most, by their number and by their bytes.
            most = rows.num_rows * BYTES_MAX // max(1, rows.get_total_buffer_size())
            most = max(1, min(self.rows_max, most))
            for start in range(0, rows.num_rows, most):
                step: dict[str, EntityStates] = defaultdict(dict)
                _put_states(step, rows.slice(start, most))
                yield step

    def _update(self, rows: pa.Table) -> None:
        _put_states(self.changes, rows)


def _put_states(changes: dict[str, EntityStates], rows: pa.Table) -> None:
    """Put the states in rows of the journal behind earlier ones; `changes` makes missing classes."""
    # Arrow would need 0.1 ms to divide four rows by their classes, and saves 0.1 µs a row where there are many.
    columns = (rows[name].to_pylist() for name in ("entity", "key", "state"))
    for name, key, state in zip(*columns, strict=True):
        changes[name][key] = state


def journal_batches(
    journal: Journal,
    after: Epoch,
    upto: Epoch,
    kinds: frozenset[PartKind] = EVERYTHING,
    rows_max: Callable[[], int] = lambda: ROWS_MAX,
    *,
    in_steps: bool = False,
) -> Iterator[ChangeBatch]:
    """Yield the epochs of (after, upto] as batches of some kinds of rows.

    Args:
        rows_max: Returns the number of rows with which a batch is full, and is asked when a batch begins.
        in_steps: As in `ChangeBatch`.
    """
    batch = ChangeBatch(after, kinds, rows_max=rows_max(), in_steps=in_steps)
    for commit in journal.commits(after, upto):
        batch.take(journal, commit)
        if batch.full:
            yield batch
            batch = ChangeBatch(batch.epoch, kinds, rows_max=rows_max(), in_steps=in_steps)
    if batch.epochs:
        yield batch
