"""Rows of several epochs, read part by part, and the entity keys of rows."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import Diverged
from penstock.journal.api import SCHEMAS, Commit, Journal, PartKind


def rows_by_epoch(
    journal: Journal, part_kind: PartKind, after: Epoch, upto: Epoch, columns: Sequence[str]
) -> Iterator[tuple[Epoch, pa.Table]]:
    """Implement `Journal.rows`, with one table for each epoch."""
    reached = after
    for commit in journal.commits(after, upto):
        if commit.epoch != reached + 1:
            break
        yield commit.epoch, epoch_rows(journal, commit, part_kind, columns)
        reached = commit.epoch
    if reached < upto:
        raise missing_epoch(Epoch(reached + 1))


def epoch_rows(
    journal: Journal, commit: Commit, part_kind: PartKind, columns: Sequence[str]
) -> pa.Table:
    """Return the rows of one epoch."""
    tables = [journal.read(part, columns) for part in commit.parts_of(part_kind)]
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables(tables) if tables else SCHEMAS[part_kind].empty_table().select(columns)


def key_column(rows: pa.Table) -> pa.ChunkedArray:
    """Return the entity key of each row, from its columns `entity` and `key`; all are strings."""
    return pc.binary_join_element_wise(rows["entity"], rows["key"], "/")


def entity_keys(rows: pa.Table) -> list[EntityKey]:
    """Return the entity key of each row, as `key_column` does, as Python's strings."""
    keys: list[EntityKey] = key_column(rows).to_pylist()
    return keys


def missing_epoch(epoch: Epoch) -> Diverged:
    """Return the error for an epoch that is needed and not held."""
    return Diverged(f"the journal has no epoch {epoch}, which is needed")
