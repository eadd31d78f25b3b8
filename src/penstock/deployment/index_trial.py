"""The trial of new indexes on stored entities, before their code is deployed.

The epoch of a deployment refuses values that an index forbids, too. But then its caller waits for the turn of the record, and
learns of two entities only. A trial takes the entities of the newest epoch; changes after it are left to the epoch of the
deployment.
"""

import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from penstock.base.ids import EntityKey, Epoch
from penstock.engine.built_indexes import RowsOf, indexed_values, indexes_to_build
from penstock.journal.api import Journal
from penstock.journal.deployments import Deployments
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.index import Index
from penstock.process.data_directory import DataDirectory
from penstock.state.newest import at_newest
from penstock.state.stores import PartitionedReader

TRIAL_S: Final = 20.0
"""The time that a trial takes for all classes together; later entities are left to the epoch of the deployment."""

SHOWN_MAX: Final = 20
"""How many entities of an index are named; the others are counted."""

_STEP: Final = 1_000
"""The clock is looked at after so many entities."""


class TriedIndex(NamedTuple):
    """The result for one index.

    Attributes:
        text: How many entities were tried, in a sentence.
        shared: A sentence for each entity that has the same value of a unique index as another one.
        entities: How many entities were tried.
    """

    text: str
    shared: list[str]
    entities: int


def try_indexes(
    directory: DataDirectory, app: App, journal: Journal, limit_s: float = TRIAL_S
) -> list[TriedIndex]:
    """Try the indexes that the code of an application adds, and return the result for each.

    Args:
        app: The application with the code, for which the journal is open.

    Raises:
        Unencodable: The value of an entity cannot be in an index.
        MigrationFailed: A function of `@migrate` has failed for an entity.
    """
    last = journal.last()
    if last is None:
        return []
    former = Deployments(directory.journal_root).indexes_at(Epoch(last.epoch + 1))
    added = list(indexes_to_build(app, former))
    if not added:
        return []
    end = time.monotonic() + limit_s

    def read(reader: PartitionedReader) -> list[TriedIndex]:
        return [tried for each in added for tried in _tried(*each, reader.items_of, end)]

    with closing(directory.open_stores(journal)) as stores:
        return at_newest(journal, stores, read) or []


def _tried(
    entity_type: EntityType, indexes: Sequence[Index], rows_of: RowsOf, end: float
) -> Iterator[TriedIndex]:
    # A first look keeps 8 bytes of each value, so that a class of any size can be tried. A second look compares the values
    # whose hashes are equal.
    hashes = {each: array("Q") for each in indexes if each.is_unique}
    count, is_whole = 0, True
    for count, (_, values) in enumerate(
        indexed_values(entity_type, rows_of(entity_type.prefix)), 1
    ):
        for index, of_index in hashes.items():
            group = index.group_of(values)
            if group is not None:
                of_index.append(_hash(group))
        if count % _STEP == 0 and time.monotonic() > end:
            is_whole = False
            break
    for index in indexes:
        shared: list[str] = []
        if index.is_unique:
            distinct, counts = np.unique(
                np.frombuffer(hashes[index], np.uint64), return_counts=True
            )
            if doubtful := frozenset(distinct[counts > 1].tolist()):
                shared = list(_shared(index, rows_of, doubtful, count))
        of = f"all {count:,}" if is_whole else f"the first {count:,}"
        yield TriedIndex(f"{index.label} was tried on {of} stored entities", shared, count)


def _shared(index: Index, rows_of: RowsOf, doubtful: frozenset[int], count: int) -> Iterator[str]:
    """Yield a sentence for each entity that has the value of an earlier one, among the first entities of a class."""
    entity_type = index.entity_type
    holders: dict[bytes, str] = {}
    shares = 0
    rows: Iterator[tuple[EntityKey, bytes]] = islice(rows_of(entity_type.prefix), count)
    for text, values in indexed_values(entity_type, rows):
        group = index.group_of(values)
        if group is None or _hash(group) not in doubtful:
            continue
        holder = holders.setdefault(group, text)
        if holder != text:
            shares += 1
            if shares <= SHOWN_MAX:
                yield str(index.shared(holder, text))
    if shares > SHOWN_MAX:
        yield f"{shares - SHOWN_MAX:,} more entities have the {index.what} of another one"


def _hash(group: bytes) -> int:
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "big")
