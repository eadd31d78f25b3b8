"""Indexes that are built over the entities that are there: a deployment has added them, or changed their class.

The rows are a function of the entities alone, so a driver and the serial runtime build the same. A deployment also removes the
rows of each index that its code lacks. An index stays as it is if nothing on which its rows depend has changed.

An index whose definition changes gets its rows in the other of its two places (`settle_places`), so the former rows are those of
the code in force until the epoch of the deployment.

A large index is prepared: the records before the deployment put rows of earlier entities into the state (`control.Prepare`), and
the deployment corrects those of the entities that have changed since (`corrected`). The rows are the same then. Without a whole
build, all rows that were prepared are removed, and all are built. Many rows that no code in force reads are removed by records
behind the deployment.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol

import msgspec

from penstock.base.ids import EntityKey, entity_key
from penstock.errors import Corrupt, Erased, RequestError, Unencodable
from penstock.model.application import App
from penstock.model.control import Prepare, Prepared
from penstock.model.entity_type import EntityType
from penstock.model.index import (
    OF_ROWS,
    Index,
    class_of,
    encode_holder,
    entry_end,
    holder_in,
    prefix_of,
)
from penstock.model.index_rows import INDEX, Pages, Read, SortedEntries, built
from penstock.model.shape import described, is_personal
from penstock.model.versions.stored_class import stored_type

RowsOf = Callable[[str], Iterable[tuple[EntityKey, bytes]]]
"""Returns the rows of the state whose keys begin with a prefix, in order."""

REMOVED_MAX: Final = 20_000
"""An epoch removes at most so many rows that no code reads: later epochs wait for it."""

BUILD: Final = entity_key(INDEX, "$build")
"""The key of the row that tells which build has rows in the state. No index has such a place."""


class Build(msgspec.Struct, frozen=True, array_like=True):
    """The rows in the state that no code in force reads: those of a build before its deployment, and those that are being removed.

    Attributes:
        id: The id of the build; empty while the rows are being removed.
        places: The indexes that have such rows; see `Index.place`.
        steps: The number of its parts that are in the state.
    """

    id: str
    places: tuple[str, ...]
    steps: int = 0


_build_in: Final = msgspec.msgpack.Decoder(Build).decode


class PreparedRows(Protocol):
    """The rows of a build that a deployment names."""

    @property
    def order(self) -> Prepared:
        """The build."""

    def corrections(
        self, indexes: Sequence[tuple[EntityType, Sequence[Index]]]
    ) -> Mapping[EntityKey, bytes | None] | None:
        """Return the changes that make its rows those of the state before the deployment; None if that is impossible."""


def index_updates(
    app: App,
    former: Mapping[str, str],
    rows_of: RowsOf,
    prepared: PreparedRows | None = None,
    removed_max: int | None = None,
) -> dict[EntityKey, bytes | None]:
    """Return the changes of a state that give it the indexes of an application.

    Args:
        former: The definitions of the indexes that the state has; see `App.indexes`.
        rows_of: Returns rows of the state.
        prepared: The build that the deployment names.
        removed_max: If more rows than these have no reader, they stay, and `BUILD` tells where they are; None: all are removed.

    Raises:
        NotUnique: Two entities have the same value of a unique index.
        Unencodable: The value of an entity cannot be in an index.
        MigrationFailed: A function of `@migrate` has failed for an entity of a class with an index.
    """
    updates: dict[EntityKey, bytes | None] = {}
    to_build = list(indexes_to_build(app, former))
    build = build_in(rows_of)
    corrections = None
    if build is not None and prepared is not None and _is_whole(build, prepared.order, former):
        places = prepared.order.places
        own = [
            (entity_type, [each for each in indexes if each.place in places])
            for entity_type, indexes in to_build
        ]
        if len(places) == sum(len(indexes) for _, indexes in own):
            corrections = prepared.corrections(own)
    ready = frozenset() if corrections is None or prepared is None else {*prepared.order.places}
    there = former.keys() if build is None else former.keys() | build.places
    unread = there - kept_indexes(app, former) - ready
    others = [
        (entity_type, [each for each in indexes if each.place not in ready])
        for entity_type, indexes in to_build
    ]
    rebuilt = {each.place for _, indexes in others for each in indexes}
    for place in sorted(unread & rebuilt):
        updates.update((key, None) for key, _ in rows_of(prefix_of(place)))
    left = tuple(sorted(unread - rebuilt))
    removed, is_more = _first_rows(left, rows_of, removed_max)
    updates.update(dict.fromkeys(() if is_more else removed))
    for entity_type, indexes in others:
        if indexes:
            rows = rows_of(entity_type.prefix)
            updates.update(_built(indexes, indexed_values(entity_type, rows)))
    if is_more:
        updates[BUILD] = msgspec.msgpack.encode(Build("", left))
    elif build is not None:
        updates[BUILD] = None
    updates.update(corrections or {})
    return updates


def _first_rows(
    places: Iterable[str], rows_of: RowsOf, count: int | None
) -> tuple[list[EntityKey], bool]:
    """Return the keys of at most `count` rows of indexes, and whether there are more."""
    every = (key for place in places for key, _ in rows_of(prefix_of(place)))
    keys = list(islice(every, None if count is None else count + 1))
    is_more = count is not None and len(keys) > count
    return keys[:count], is_more


def build_in(rows_of: RowsOf) -> Build | None:
    """Return the build that has rows in a state; None without one."""
    for _, row in rows_of(BUILD):
        return _build_in(row)
    return None


def _is_whole(build: Build, order: Prepared, former: Mapping[str, str]) -> bool:
    """Say whether a state has all rows of a build, and no rows of an index in force with the same place."""
    is_same = (build.id, build.places, build.steps) == (order.build, order.places, order.steps)
    return is_same and former.keys().isdisjoint(order.places)


def begun_build(control: Prepare, rows_of: RowsOf) -> tuple[dict[EntityKey, bytes | None], bool]:
    """Return the changes of the step 0 of a build, or of a removal, and whether further rows are to be removed."""
    earlier = build_in(rows_of)
    if not control.places and (earlier is None or earlier.id not in ("", control.build)):
        return {}, False  # another build goes on
    removed, is_more = _first_rows(() if earlier is None else earlier.places, rows_of, REMOVED_MAX)
    updates: dict[EntityKey, bytes | None] = dict.fromkeys(removed)
    if is_more:  # which ends the earlier build, if its order still runs
        assert earlier is not None, "it has rows"
        updates[BUILD] = msgspec.msgpack.encode(Build("", earlier.places))
    elif control.places:
        updates[BUILD] = msgspec.msgpack.encode(Build(control.build, control.places))
    elif earlier is not None:
        updates[BUILD] = None
    return updates, is_more


def next_build(control: Prepare, rows_of: RowsOf) -> Build:
    """Return the build after a later step; its row is part of the step.

    Raises:
        Erased: The build has ended; see `ended_build`.
        RequestError: The state has another build, or other parts of it.
    """
    build = build_in(rows_of)
    if build is None or not build.id:
        raise Erased("the build has ended meanwhile, as it does at the erasure of a person")
    if build != Build(control.build, control.places, control.step - 1):
        raise RequestError("another deployment has begun meanwhile")
    return Build(control.build, control.places, control.step)


def ended_build(stored_name: str, rows_of: RowsOf) -> dict[EntityKey, bytes | None]:
    """Return the change that ends the build of an index of a class, if there is one: its rows are to be removed.

    So an erasure needs no rows of the build, and no later step brings back rows of the person.
    """
    build = build_in(rows_of)
    if build is None or stored_name not in map(class_of, build.places):
        return {}
    return {BUILD: msgspec.msgpack.encode(Build("", build.places))}


def indexes_to_build(
    app: App, former: Mapping[str, str]
) -> Iterator[tuple[EntityType, list[Index]]]:
    """Yield each class with indexes that a state lacks, and these indexes; `former` as for `index_updates`."""
    kept = kept_indexes(app, former)
    for entity_type in app.indexed.values():
        indexes = [each for each in entity_type.indexes if each.place not in kept]
        if indexes:
            yield entity_type, indexes


def settle_places(app: App, former: Mapping[str, str]) -> None:
    """Let each index of an application have the place of its rows over a state; `former` as for `index_updates`.

    The rows of the state have their place if they stay, and also if `former` is that of the application itself. Rows that must be built get the other
    place, so the former ones can be read until the deployment. Without former rows, it is the first place.
    """
    for entity_type in app.indexed.values():
        for index in entity_type.indexes:
            place, other = index.places
            if place not in former:
                place, other = other, place
            if place not in former or not _stays(entity_type, index, former[place]):
                place = other
            index.use_place(place)


def kept_indexes(app: App, former: Mapping[str, str]) -> frozenset[str]:
    """Return the places of the indexes whose rows are in a state already; `former` as for `index_updates`.

    The classes know their versions.
    """
    return frozenset(
        index.place
        for entity_type in app.indexed.values()
        for index in entity_type.indexes
        if index.place in former and _stays(entity_type, index, former[index.place])
    )


def _stays(entity_type: EntityType, index: Index, former: str) -> bool:
    """Say whether the rows of an index stay, which had a definition before; see `App.indexes`."""
    return former == index.stored_definition or _has_same_values(entity_type, index, former)


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


class Standing(NamedTuple):
    """Where an entity stands in an index.

    Attributes:
        row: The key of the row of its value, or of the root of its rows.
        entry: Its entry there; empty in a unique index.
    """

    row: EntityKey
    entry: bytes


Standings = Sequence[Standing | None]
"""Where an entity stands in each of some indexes; None: not there."""


def standings(
    indexes: Sequence[Index], entities: Iterable[tuple[str, list[bytes]]]
) -> Iterator[tuple[str, Standings]]:
    """Yield the text of the key, and the standings, of each entity; `entities` as of `indexed_values`."""
    rows: dict[tuple[Index, bytes], EntityKey] = {}

    def standing(index: Index, values: list[bytes], end: bytes) -> Standing | None:
        group = index.group_of(values)
        if group is None:
            return None
        if index.is_unique:
            return Standing(index.row_of(group), b"")
        row = rows.get((index, group))
        if row is None:
            row = rows[index, group] = index.row_of(group)
        return Standing(row, index.entry_of(values, end))

    for text, values in entities:
        end = entry_end(text)
        yield text, [standing(index, values, end) for index in indexes]


def corrected(
    indexes: Sequence[Index],
    former: Mapping[str, Standings],
    present: Mapping[str, Standings],
    read: Read,
) -> Iterator[tuple[EntityKey, bytes | None]]:
    """Yield the changes of rows of one class after changes of its entities: the rows are those that a build at once makes.

    Args:
        former: The standings of changed entities in the rows of the state, by the texts of their keys; new entities are left out.
        present: Their standings now; deleted entities are left out.
        read: Returns a row of the state.

    Raises:
        NotUnique: Two entities have the same value of a unique index.
        Corrupt: The rows of the state are not those of the former standings.
    """
    nothing: Standings = [None] * len(indexes)
    for number, index in enumerate(indexes):
        left: dict[EntityKey, dict[bytes, str]] = defaultdict(dict)
        taken: dict[EntityKey, dict[bytes, str]] = defaultdict(dict)
        for text in dict.fromkeys((*former, *present)):
            was = former.get(text, nothing)[number]
            now = present.get(text, nothing)[number]
            if was == now:
                continue
            if was is not None:
                left[was.row][was.entry] = text
            if now is not None:
                holder = taken[now.row].setdefault(now.entry, text)
                if holder != text:
                    raise index.shared(holder, text)
        change = _changed_holder if index.is_unique else _changed_entries
        for row in dict.fromkeys((*left, *taken)):
            yield from change(index, row, (left[row], taken[row]), read)


def _changed_holder(
    index: Index, row: EntityKey, change: tuple[dict[bytes, str], dict[bytes, str]], read: Read
) -> Iterator[tuple[EntityKey, bytes | None]]:
    (left,), (taken,) = ([*each.values(), None][:1] for each in change)
    data = read(row)
    holder = None if data is None else holder_in(data)
    if holder != left:
        if holder is not None and left is None and taken is not None:
            raise index.shared(holder, taken)
        raise _other_rows(row)
    yield row, None if taken is None else encode_holder(taken)


def _changed_entries(
    _: Index, row: EntityKey, change: tuple[dict[bytes, str], dict[bytes, str]], read: Read
) -> Iterator[tuple[EntityKey, bytes | None]]:
    left, taken = change
    pages = Pages(read)
    entries = list(SortedEntries(pages, row).ascending())
    stay = [entry for entry in entries if entry not in left] if left else entries
    if len(entries) - len(stay) != len(left):
        raise _other_rows(row)
    if taken:
        stay = sorted([*stay, *taken])
    made = built(row, stay) if stay else {}
    former = pages.read_rows()
    for name in dict.fromkeys((*former, *made)):
        if former.get(name) != made.get(name):
            yield name, made.get(name)


def _other_rows(row: EntityKey) -> Corrupt:
    return Corrupt(f"the index row {row} was not prepared as the files of its build say")


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
            yield self._index.row_of(group), encode_holder(text)


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
