"""Indexes that are built at once, over the entities that are there: a deployment has added them, or changed their class.

The rows are a function of the entities alone, so a driver and the serial runtime build the same. A deployment also removes the
rows of each index that its code lacks. An index stays as it is if nothing on which its rows depend has changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from penstock.base.ids import EntityKey
from penstock.errors import Unencodable
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.index import OF_ROWS, Index, entry_end, prefix_of
from penstock.model.index_rows import built
from penstock.model.shape import described, is_personal
from penstock.model.versions.stored_class import stored_type

RowsOf = Callable[[str], Iterable[tuple[EntityKey, bytes]]]
"""Returns the rows of the state whose keys begin with a prefix, in order."""

_encode: Callable[[str], bytes] = msgspec.msgpack.Encoder().encode


def index_updates(
    app: App, former: Mapping[str, str], rows_of: RowsOf
) -> dict[EntityKey, bytes | None]:
    """Return the changes of a state that give it the indexes of an application.

    Args:
        former: The definitions of the indexes that the state has; see `App.indexes`.
        rows_of: Returns rows of the state.

    Raises:
        NotUnique: Two entities have the same value of a unique index.
        Unencodable: The value of an entity cannot be in an index.
        MigrationFailed: A function of `@migrate` has failed for an entity of a class with an index.
    """
    updates: dict[EntityKey, bytes | None] = {}
    for place in sorted(former.keys() - kept_indexes(app, former)):
        updates.update((key, None) for key, _ in rows_of(prefix_of(place)))
    for entity_type, indexes in indexes_to_build(app, former):
        rows = rows_of(entity_type.prefix)
        updates.update(_built(indexes, indexed_values(entity_type, rows)))
    return updates


def indexes_to_build(
    app: App, former: Mapping[str, str]
) -> Iterator[tuple[EntityType, list[Index]]]:
    """Yield each class with indexes that a state lacks, and these indexes; `former` as for `index_updates`."""
    kept = kept_indexes(app, former)
    for entity_type in app.indexed.values():
        indexes = [each for each in entity_type.indexes if each.place not in kept]
        if indexes:
            yield entity_type, indexes


def kept_indexes(app: App, former: Mapping[str, str]) -> frozenset[str]:
    """Return the places of the indexes whose rows are in a state already; `former` as for `index_updates`.

    The classes know their versions.
    """
    present = app.indexes
    return frozenset(
        index.place
        for entity_type in app.indexed.values()
        for index in entity_type.indexes
        if index.place in former
        and (
            former[index.place] == present[index.place]
            or _has_same_values(entity_type, index, former[index.place])
        )
    )


def _has_same_values(entity_type: EntityType, index: Index, former: str) -> bool:
    """Say whether surely all stored entities have the values in an index that they had with another shape of their class.

    Args:
        former: The definition of the index with that shape.
    """
    definition, _, tag = former.rpartition(OF_ROWS)
    versions = entity_type.versions
    tags = [f"{version.shape.tag:08x}" for version in versions]
    present = f"{entity_type.shape.tag:08x}"
    # A shape that the class has had twice does not say which versions lie between.
    is_known = tags.count(tag) == tags.count(present) == 1 and tags[-1] == present
    if definition != index.definition or not is_known:
        return False
    # A function of `@migrate` is code: with other code, rows of earlier versions may have other values.
    if any(version.migrated for version in versions):
        return False
    place = tags.index(tag)
    shape = versions[place].shape
    names = [part.name for part in index.parts]
    stay = all(
        name in step.origins and step.origins[name].former == name
        for step in versions[place + 1 :]
        for name in names
    )
    if not stay or is_personal(shape) != entity_type.personal:
        return False
    types = stored_type(entity_type.stored_name, shape).attributes
    return all(described(types[name]) == described(entity_type.attributes[name]) for name in names)


def indexed_values(
    entity_type: EntityType, rows: Iterable[tuple[EntityKey, bytes]]
) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the text of the key, and the values on which the indexes depend, of each entity; raises as `index_updates`."""
    begin, indexed = len(entity_type.prefix), entity_type.indexed_values
    head = None if entity_type.personal else entity_type.row_head
    for key, row in rows:
        text = key[begin:]
        try:
            if head is None or not row.startswith(head):
                value = entity_type.key_at(text)
                row = entity_type.opened(value, entity_type.present(value, row))
            values = indexed.of(row)
        except Unencodable as error:
            raise Unencodable(f"{entity_type.name} {text!r}: {error}") from error
        yield text, values


def _built(
    indexes: Sequence[Index], entities: Iterable[tuple[str, list[bytes]]]
) -> Iterator[tuple[EntityKey, bytes]]:
    """Yield all rows of indexes of one class."""
    every: list[_Holders | _Entries] = [
        _Holders(index) if index.is_unique else _Entries(index) for index in indexes
    ]
    for text, values in entities:
        for each in every:
            each.take(text, values)
    for each in every:
        yield from each.rows()


# The name of a row is made once for each value, and not for each entity.


class _Holders:
    """The entities of a unique index, by their values."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._texts: dict[bytes, str] = {}

    def take(self, text: str, values: Sequence[bytes]) -> None:
        """Take the next entity; raises `NotUnique` if an earlier one has its value."""
        group = self._index.group_of(values)
        if group is not None:
            holder = self._texts.setdefault(group, text)
            if holder != text:
                raise self._index.shared(holder, text)

    def rows(self) -> Iterator[tuple[EntityKey, bytes]]:
        for group, text in self._texts.items():
            yield self._index.row_of(group), _encode(text)


class _Entries:
    """The entries of another index, by the values of their entities."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._entries: dict[bytes, list[bytes]] = defaultdict(list)

    def take(self, text: str, values: Sequence[bytes]) -> None:
        """Take the next entity."""
        group = self._index.group_of(values)
        if group is not None:
            self._entries[group].append(self._index.entry_of(values, entry_end(text)))

    def rows(self) -> Iterator[tuple[EntityKey, bytes]]:
        for group, entries in self._entries.items():
            yield from built(self._index.row_of(group), sorted(entries)).items()
