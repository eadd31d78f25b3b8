"""Folds: the changes of consecutive epochs as one step, in which the last writer of a key wins.

Promises bounded memory: a fold ends with the epoch in which it reaches its limit, so that a view
which lags behind by millions of changes takes them in pieces.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.journal.api import TRANSACTIONS, Commit, Journal, PartKind
from penstock.snapshots.snapshot import Manifest, Snapshots

ROWS_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20

EntityStates = dict[str, bytes | None]
"""Key's text to state, None where the entity was deleted."""


@dataclass(slots=True)
class ChangeBatch:
    """What happened in the epochs up to one.

    Attributes:
        epoch: The last of them.
        changes: Class name to its changes.
        transactions: The journal's rows, in order.
        epochs: Of each epoch: number, time in microseconds, requests.
        rows: How many changes and transactions were read.
    """

    epoch: Epoch
    changes: dict[str, EntityStates] = field(default_factory=lambda: defaultdict(dict))
    transactions: list[pa.Table] = field(default_factory=list)
    epochs: list[tuple[int, int, int]] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def take(self, journal: Journal, commit: Commit) -> None:
        """Add the next epoch.

        Raises:
            Corrupt: A part of it is damaged.
        """
        assert commit.epoch == self.epoch + 1, f"epoch {commit.epoch} after {self.epoch}"
        records = 0
        for part in commit.parts:
            rows = journal.read(part)
            self.rows += rows.num_rows
            self.size += rows.nbytes
            if part.kind is PartKind.CHANGES:
                self._change(rows)
            else:
                records += rows.num_rows
                self.transactions.append(rows)
        self.epochs.append((commit.epoch, commit.time_us, records))
        self.epoch = commit.epoch

    @property
    def full(self) -> bool:
        """Whether it should be applied before more is read."""
        return self.rows >= ROWS_MAX or self.size >= BYTES_MAX

    def newest_transactions(self, most: int) -> pa.Table:
        """Return the transactions in order of their epochs and log positions, the last `most`."""
        if not self.transactions:
            return TRANSACTIONS.empty_table()
        table = pa.concat_tables(self.transactions)
        order = [("epoch", "ascending"), ("lsn", "ascending")]
        return table.sort_by(order).slice(max(0, table.num_rows - most))

    def _change(self, rows: pa.Table) -> None:
        entities = rows["entity"].combine_chunks().dictionary_encode()
        codes = entities.indices.to_numpy()
        for code, name in enumerate(entities.dictionary.to_pylist()):
            chosen = rows.filter(pa.array(codes == code)) if len(entities.dictionary) > 1 else rows
            self.changes[name].update(
                zip(chosen["key"].to_pylist(), chosen["state"].to_pylist(), strict=True)
            )


def snapshot_batches(snapshots: Snapshots, manifest: Manifest) -> Iterator[ChangeBatch]:
    """Yield a snapshot in folds: all but the last lead nowhere, the last one to its epoch.

    Raises:
        Corrupt: A file of it is missing or damaged.
    """
    for name, its in manifest.classes.items():
        for file in its.files:
            fold = ChangeBatch(BEFORE_FIRST)
            rows = snapshots.states(its, file)
            fold.changes[name].update(
                zip(rows["key"].to_pylist(), rows["state"].to_pylist(), strict=True)
            )
            yield fold
    yield ChangeBatch(manifest.epoch)


def journal_batches(journal: Journal, after: Epoch, upto: Epoch) -> Iterator[ChangeBatch]:
    """Yield the epochs of (after, upto] in folds.

    Raises:
        Corrupt: The journal is damaged.
    """
    fold = ChangeBatch(after)
    for commit in journal.commits(after, upto):
        fold.take(journal, commit)
        if fold.full:
            yield fold
            fold = ChangeBatch(fold.epoch)
    if fold.epochs:
        yield fold
