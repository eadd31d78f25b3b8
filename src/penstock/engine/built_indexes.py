"""Indexes that are built at once, over the entities that are there: a deployment has added them, or changed their class.

The rows are a function of the entities alone, so a driver and the serial runtime build the same. A deployment also removes the
rows of each index that its code lacks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from penstock.base.ids import EntityKey
from penstock.errors import Unencodable
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.index import Index, entry_end, prefix_of
from penstock.model.index_rows import built

RowsOf = Callable[[str], Iterable[tuple[EntityKey, bytes]]]
"""Returns the rows of the state whose keys begin with a prefix, in order."""

_Entry = tuple[EntityKey, bytes, str]
"""The name of the row of a value, the entry there, and the text of the key."""

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
    present = app.indexes
    updates: dict[EntityKey, bytes | None] = {}
    for place, text in sorted(former.items()):
        if present.get(place) != text:
            updates.update((key, None) for key, _ in rows_of(prefix_of(place)))
    for entity_type, indexes in indexes_to_build(app, former):
        rows = rows_of(entity_type.prefix)
        updates.update(_built(indexes, indexed_values(entity_type, rows)))
    return updates


def indexes_to_build(
    app: App, former: Mapping[str, str]
) -> Iterator[tuple[EntityType, list[Index]]]:
    """Yield each class with indexes that a state lacks, and these indexes; `former` as for `index_updates`."""
    present = app.indexes
    for entity_type in app.indexed.values():
        indexes = [
            each for each in entity_type.indexes if former.get(each.place) != present[each.place]
        ]
        if indexes:
            yield entity_type, indexes


def indexed_values(
    entity_type: EntityType, rows: Iterable[tuple[EntityKey, bytes]]
) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the text of the key, and the values on which the indexes depend, of each entity; raises as `index_updates`."""
    begin, indexed = len(entity_type.prefix), entity_type.indexed_values
    for key, row in rows:
        text = key[begin:]
        value = entity_type.key_at(text)
        try:
            values = indexed.of(entity_type.opened(value, entity_type.present(value, row)))
        except Unencodable as error:
            raise Unencodable(f"{entity_type.name} {text!r}: {error}") from error
        yield text, values


def _built(
    indexes: Sequence[Index], entities: Iterable[tuple[str, list[bytes]]]
) -> Iterator[tuple[EntityKey, bytes]]:
    """Yield all rows of indexes of one class."""
    entries: list[list[_Entry]] = [[] for _ in indexes]
    for text, values in entities:
        for each, own in zip(indexes, entries, strict=True):
            group = each.group_of(values)
            if group is not None:
                entry = b"" if each.is_unique else each.entry_of(values, entry_end(text))
                own.append((each.row_of(group), entry, text))
    for each, own in zip(indexes, entries, strict=True):
        own.sort()
        yield from _rows_of(each, own)


def _rows_of(each: Index, entries: Sequence[_Entry]) -> Iterator[tuple[EntityKey, bytes]]:
    """Yield the rows of one index, whose entries are in order."""
    begin = 0
    while begin < len(entries):
        name, _, text = entries[begin]
        end = begin + 1
        while end < len(entries) and entries[end][0] == name:
            end += 1
        if not each.is_unique:
            yield from built(name, map(itemgetter(1), entries[begin:end])).items()
        elif end - begin > 1:
            raise each.shared(text, entries[begin + 1][2])
        else:
            yield name, _encode(text)
        begin = end
