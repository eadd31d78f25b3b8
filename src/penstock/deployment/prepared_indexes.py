"""The rows of new indexes that are in the state before their deployment, and the files that say where their entities stand.

An order that deploys code makes the rows in a process of its own (`index_build`), and puts them into the state by control
records (`control.Prepare`). Requests go on between these. So the epoch of the deployment has to correct the rows of those
entities only that have changed since. It finds the former row and the former entry of such an entity in files: the
entities of some buckets are in one file. The files are a help: without them, the epoch builds all rows.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.ids import BUCKETS, EntityKey, Epoch, bucket_of, partition_of
from penstock.engine.built_indexes import (
    Standing,
    Standings,
    corrected,
    indexed_values,
    standings,
)
from penstock.errors import PenstockError
from penstock.journal.api import Journal, PartKind
from penstock.journal.parquet import key_column
from penstock.journal.staged import StagedRows
from penstock.model.control import Prepared
from penstock.model.entity_type import EntityType
from penstock.model.index import Index
from penstock.model.index_rows import Read
from penstock.snapshots.newest_states import buckets_of

_log = logging.getLogger(__name__)

PREPARE: Final = "prepare"
"""The first word of the ids of the control records of a build, and of a removal of rows."""

STANDINGS: Final = pa.schema(
    [
        pa.field("key", pa.large_string()),  # of the entity
        pa.field("place", pa.int32()),  # the number of the index in `Prepared.places`
        pa.field("row", pa.large_string()),  # the key of the row; null: it stands in no index
        pa.field("entry", pa.large_binary()),
    ]
)
"""A row for each entity and each index in which it stands; of a changed entity at least one."""

_NOWHERE: Final = STANDINGS.empty_table()

ENTITIES_MAX: Final = 20_000
"""About so many entities are in one file."""

ClassIndexes = Sequence[tuple[EntityType, Sequence[Index]]]
"""Classes, and indexes of each of them."""


class ChangedEntities:
    """Where entities that have changed stand now, and where they stood in the rows that are prepared."""

    def __init__(self, order: Prepared, staged: StagedRows, classes: ClassIndexes) -> None:
        self._order = order
        self._staged = staged
        self._classes = classes
        self.keys: set[EntityKey] = set()
        self.present: dict[EntityKey, Standings] = {}

    def find(self, journal: Journal, upto: Epoch) -> None:
        """Find the entities that have changed after the epoch of the rows.

        Raises:
            Diverged: The journal does not have all epochs any more.
        """
        names = pa.array([entity_type.stored_name for entity_type, _ in self._classes], pa.string())
        columns = ["entity", "key"]
        for _, rows in journal.rows(PartKind.CHANGES, self._order.epoch, upto, columns):
            mine = rows.filter(pc.is_in(rows["entity"], value_set=names))
            if mine.num_rows:
                self.keys.update(key_column(mine).to_pylist())

    def corrections(self, read: Read) -> dict[EntityKey, bytes | None]:
        """Return the changes of rows; raises as `corrected`, `indexed_values` and `StagedRows.table`.

        Args:
            read: Returns a row of the state.
        """
        former, self.present = self._former(), {}
        updates: dict[EntityKey, bytes | None] = {}
        for entity_type, indexes in self._classes:
            begin = len(entity_type.prefix)
            mine = sorted(key for key in self.keys if key.startswith(entity_type.prefix))
            rows = ((key, row) for key in mine if (row := read(key)) is not None)
            present = dict(standings(indexes, indexed_values(entity_type, rows)))
            self.present |= {
                EntityKey(entity_type.prefix + text): each for text, each in present.items()
            }
            places = [self._order.places.index(each.place) for each in indexes]
            was = {
                key[begin:]: [former[key].get(place) for place in places]
                for key in mine
                if key in former
            }
            updates.update(corrected(indexes, was, present, read))
        return updates

    def table(self) -> pa.Table:
        """Return where the entities stand, after `corrections`, as `STANDINGS`."""
        made = [_NOWHERE]
        for entity_type, indexes in self._classes:
            places = [self._order.places.index(each.place) for each in indexes]
            prefix = entity_type.prefix
            mine = ((key, each) for key, each in self.present.items() if key.startswith(prefix))
            made.append(standing_table(mine, places))
        standing = pa.concat_tables(made)
        nowhere = self.keys.difference(standing["key"].to_pylist())
        rows = [{"key": key, "place": 0, "row": None, "entry": None} for key in sorted(nowhere)]
        return pa.concat_tables([standing, pa.Table.from_pylist(rows, schema=STANDINGS)])

    def _former(self) -> Mapping[EntityKey, Mapping[int, Standing]]:
        """Return where the entities stood, by the number of the index."""
        known: dict[EntityKey, dict[int, Standing]] = {}
        rest = self.keys
        for name in reversed(self._order.later):
            known |= (of_file := self._in_file(name, rest))
            rest = rest - of_file.keys()
        files = self._order.files
        by_file: dict[int, set[EntityKey]] = defaultdict(set)
        for key in sorted(rest):
            by_file[partition_of(bucket_of(key), len(files))].add(key)
        for number, keys in by_file.items():
            known |= self._in_file(files[number], keys)
        return known

    def _in_file(
        self, name: str, keys: Collection[EntityKey]
    ) -> dict[EntityKey, dict[int, Standing]]:
        rows = self._staged.table(name).cast(STANDINGS)
        mine = rows.filter(
            pc.is_in(rows["key"], value_set=pa.array(sorted(keys), pa.large_string()))
        )
        known: dict[EntityKey, dict[int, Standing]] = defaultdict(dict)
        columns = (mine[field].to_pylist() for field in STANDINGS.names)
        for key, place, row, entry in zip(*columns, strict=True):
            of_entity = known[key]
            if row is not None:
                of_entity[place] = Standing(row, entry)
        return dict(known)


class DeployedRows:
    """The rows that a deployment names, for its epoch; see `engine.built_indexes.PreparedRows`."""

    def __init__(
        self, order: Prepared, staged: StagedRows, journal: Journal, read: Read, upto: Epoch
    ) -> None:
        """Take a build whose classes have not changed since.

        Args:
            read: Returns a row of the state before the deployment.
            upto: The epoch of this state.
        """
        self.order: Final = order
        self._staged = staged
        self._journal = journal
        self._read = read
        self._upto = upto

    def corrections(self, indexes: ClassIndexes) -> dict[EntityKey, bytes | None] | None:
        """Return the changes that make the rows those of the state; None if that is impossible."""
        changed = ChangedEntities(self.order, self._staged, indexes)
        try:
            changed.find(self._journal, self._upto)
            return changed.corrections(self._read)
        # Of two entities with one value, a build of all rows names those that the serial runtime names.
        except PenstockError as error:
            extra = {"build": self.order.build, "cause": str(error)}
            _log.warning("prepared indexes cannot be used, and are built again", extra=extra)
            return None


def standing_table(
    entities: Iterable[tuple[EntityKey, Standings]], places: Sequence[int]
) -> pa.Table:
    """Return standings as `STANDINGS`, without those that are None.

    Args:
        places: The number of each index in `Prepared.places`.
    """
    rows = [
        (key, place, *standing)
        for key, of_entity in entities
        for place, standing in zip(places, of_entity, strict=True)
        if standing is not None
    ]
    columns = zip(zip(*rows, strict=True), STANDINGS, strict=True) if rows else ()
    arrays = [pa.array(values, field.type) for values, field in columns]
    return pa.table(arrays, schema=STANDINGS) if rows else STANDINGS.empty_table()


def staged_standings(table: pa.Table, staged: StagedRows, build: str, entities: int) -> list[str]:
    """Store standings in files by the buckets of their entities, and return the names of the files.

    Args:
        entities: The number of the entities.
    """
    count = max(1, min(BUCKETS, entities // ENTITIES_MAX))
    files = buckets_of(table["key"]).astype(np.int64) * count // BUCKETS  # as `partition_of`
    order = np.argsort(files, kind="stable")
    bounds = np.searchsorted(files[order], np.arange(count + 1)).tolist()
    return [
        staged.stage_table(table.take(pa.array(order[begin:end])), build, "an index")
        for begin, end in pairwise(bounds)
    ]
