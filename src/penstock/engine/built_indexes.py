"""Indexes that are built at once, over the entities that are there: a deployment has added them, or changed their class.

The rows are a function of the entities alone, so a driver and the serial runtime build the same. A deployment also removes the
rows of each index that its code lacks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import msgspec

from penstock.base.ids import EntityKey
from penstock.model.application import App
from penstock.model.entity_type import EntityType
from penstock.model.index import Index, IndexedValues, prefix_of
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
        MigrationFailed: A function of `@migrate` has failed for an entity of a class with an index.
    """
    present = app.indexes
    changed = {each for each, text in present.items() if former.get(each) != text}
    updates: dict[EntityKey, bytes | None] = {}
    for place in sorted(former.keys() - present.keys() | changed & former.keys()):
        updates.update((key, None) for key, _ in rows_of(prefix_of(place)))
    for entity_type in app.indexed.values():
        indexes = [each for each in entity_type.indexes if each.place in changed]
        if indexes:
            updates.update(
                _built(indexes, entity_type.indexed_values, _present(entity_type, rows_of))
            )
    return updates


def _present(entity_type: EntityType, rows_of: RowsOf) -> Iterator[tuple[str, bytes]]:
    """Yield the text of the key, and the readable row as the class is declared, of each entity."""
    prefix = entity_type.prefix
    for key, row in rows_of(prefix):
        text = key[len(prefix) :]
        value = entity_type.key_at(text)
        yield text, entity_type.opened(value, entity_type.present(value, row))


def _built(
    indexes: Sequence[Index], indexed: IndexedValues, rows: Iterable[tuple[str, bytes]]
) -> Iterator[tuple[EntityKey, bytes]]:
    """Yield all rows of indexes of one class."""
    entries: list[list[_Entry]] = [[] for _ in indexes]
    for text, row in rows:
        values = indexed.of(row)
        for each, own in zip(indexes, entries, strict=True):
            group = each.group_of(values)
            if group is not None:
                entry = b"" if each.is_unique else each.entry_of(values, text)
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
