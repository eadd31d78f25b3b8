"""Indexes: handlers find entities by the values of their attributes.

`email: str = unique()` and `by_slot = unique("doctor", "start")` let at most one entity have a value, and find it. `by_owner =
index("owner", order="due")` finds all entities with a value, or the first or last of them. An index is rows of the state
(`model.index_rows`), which a transaction reads and writes as it reads and writes entities. So an answer is that of a single
thread: it has all changes of earlier requests, and those that the running transaction has made so far.

The rows change at the end of a transaction (`IndexChanges`), for the entities that it has changed.
"""

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from hashlib import blake2b
from heapq import merge
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar, cast, overload

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.ids import EntityKey, entity_key, split_entity_key
from penstock.base.ordered_bytes import NONE, VALUE_BYTES_MAX, Ordered, ordered_by
from penstock.base.schema import decode_reference, is_enum, name_of, reference_type, shown
from penstock.errors import IntegrityError, NotUnique, Unencodable, UserError
from penstock.model.attribute import DeclaredIndex, UniqueMarker
from penstock.model.context import Transaction, current
from penstock.model.declaration import RESERVED, Declaration, caller_place
from penstock.model.entity_type import EntityType
from penstock.model.index_rows import INDEX, Pages, Read, SortedEntries
from penstock.model.personal import PersonalType
from penstock.model.shape import described
from penstock.native.choice import core

E = TypeVar("E")

NAME_BYTES_MAX: Final = 100
_SORTED_MAX: Final = 10_000
"""The most entities of one value that are sorted by their keys."""

_SHORT: Final = 60
"""Bytes of values that are in the names of rows as they are; of longer ones, a hash is."""

OF_ROWS: Final = " of rows "
"""Stands between a definition and the tag of the rows; see `App.indexes`."""

_OTHER: Final = ":2"
"""The end of the other place of an index; no name of an index has it."""

NUL: Final = "\0"

FEW: Final = 32
"""The most rows that a transaction has touched where a lookup looks at each of them; see `_Touched`."""

NO_GROUP: Final = b""
"""That of an entity that is not live."""

_get: Final = object.__getattribute__

_LENGTH: Final = 2
_RAWS: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
encode_holder: Final[Callable[[str], bytes]] = msgspec.msgpack.Encoder().encode
"""Returns the row of a unique value, by the text of the key of the entity that has it."""

holder_in: Final = msgspec.msgpack.Decoder(str).decode
"""Returns that text."""


class Lookup(Generic[E]):
    """An index of an entity class, as `index(…)` in the class declares it: `Task.by_owner(ada, first=20)`."""

    def __init__(self, index: "Index") -> None:
        self.index = index

    def __call__(
        self, *values: Any, first: int | None = None, last: int | None = None, **unknown: Never
    ) -> list[E]:
        """Return the entities with these values, in order.

        Args:
            values: A value for each attribute of the index; a reference, or its key, for a reference.
            first: Only so many from the beginning.
            last: Only so many up to the end; the order stays.

        Raises:
            UserError: An argument has another name, or the number of values is wrong.
            Unencodable: A value does not fit the type of its attribute.
        """
        if unknown:
            raise UserError(
                f"{self.index.label} does not know {', '.join(unknown)}: it takes {self.index.what} by position, and "
                "first=20 or last=20 for a number of entities"
            )
        return self.index.entities(values, first, last)

    def __repr__(self) -> str:
        return f"<index {self.index.label}>"


class UniqueLookup(Generic[E]):
    """A unique index of an entity class, as `unique(…)` in the class declares it: `Patient.by_email("x")`."""

    def __init__(self, index: "Index") -> None:
        self.index = index

    def __call__(self, *values: Any) -> E | None:
        """Return the entity with these values, or None.

        Args:
            values: A value for each attribute of the index; a reference, or its key, for a reference.

        Raises:
            Unencodable: A value does not fit the type of its attribute.
            UserError: A value is None, which any number of entities may have.
        """
        holder: E | None = self.index.holder(values)
        return holder

    def __repr__(self) -> str:
        return f"<unique index {self.index.label}>"


if TYPE_CHECKING:

    class _IndexOf:
        def __get__(self, instance: object, owner: type[E]) -> Lookup[E]: ...

    class _UniqueOf:
        def __get__(self, instance: object, owner: type[E]) -> UniqueLookup[E]: ...


@overload
def unique(*, default: Any = ...) -> Any: ...
@overload
def unique(first: str, /, *others: str) -> "_UniqueOf": ...
def unique(*attributes: str, default: Any = MISSING) -> Any:
    """Declare that no two entities of a class have the same value, and find the entity that has one.

    Written as the default of an attribute, `email: str = unique()`, it adds `Patient.by_email("x")` to the class, which returns the
    entity, or None. Written as `by_slot = unique("doctor", "start")`, it is about the values of several attributes, and has a name
    that type checkers know.

    The rule holds at the end of a transaction, so two entities can exchange their values. A transaction that breaks it is
    undone with the code `not-unique`. Any number of entities may have None.

    Args:
        attributes: The attributes, where it does not stand for the default of one.
        default: The default of the attribute; also `reference(…)` or `was(…)`.
    """
    if not attributes:
        return UniqueMarker(default, caller_place())
    if default is not MISSING:
        raise TypeError(
            "unique() has a default only where it stands for the default of an attribute"
        )
    return DeclaredIndex(attributes, None, is_unique=True, where=caller_place())


def index(*attributes: str, order: str | None = None) -> "_IndexOf":
    """Declare an index: handlers find the entities of a class by the values of attributes.

    Written in an entity class: `by_owner = index("owner", order="due")`. Then `Task.by_owner(ada)` returns all tasks of `ada` in
    the order of `due`, and `Task.by_owner(ada, first=20)` the first 20. Equal values of `due` are in the order of the keys as text.
    None comes first.

    Args:
        attributes: The attributes whose values a lookup names; without any, an index has all entities of the class.
        order: The attribute by which the entities are ordered; None: by key.
    """
    declared: Any = DeclaredIndex(attributes, order, is_unique=False, where=caller_place())
    return cast("_IndexOf", declared)


class _Part(msgspec.Struct, frozen=True):
    """An attribute of an index.

    Attributes:
        place: The place of its value in a row.
        decode: Reads the value in a row.
        ordered: Returns its bytes.
        way: How the compiled implementation makes these bytes; see `native.indexes`.
    """

    name: str
    place: int
    decode: Callable[[msgspec.Raw], Any]
    ordered: Ordered
    way: str


class IndexedValues:
    """Reads the values of a row on which the indexes of a class depend."""

    def __init__(self, parts: Iterable[_Part]) -> None:
        by_place = {part.place: part for part in parts}
        self.places = tuple(sorted(by_place))
        self._parts = [by_place[place] for place in self.places]
        self._ways = bytes(core.VALUE_WAYS[part.way] for part in self._parts) if core else b""

    def of(self, row: bytes) -> list[bytes]:
        """Return the bytes of the values in a readable row, by the order of `places`."""
        made: list[bytes] | None = None
        if core is not None:
            made = core.values_at(row, self.places, self._ways, VALUE_BYTES_MAX)
        if made is None:
            raws = _RAWS(row)
            made = [part.ordered(part.decode(raws[part.place])) for part in self._parts]
        return made

    def are_same(self, row: bytes, other: bytes) -> bool:
        """Say whether two readable rows have the same values."""
        if core is not None:
            return bool(core.same_at(row, other, self.places))
        raws, others = _RAWS(row), _RAWS(other)
        return all(raws[place] == others[place] for place in self.places)


class Index:
    """An index of an entity class, or a unique one.

    Attributes:
        entity_type: The class.
        label: The class and the index, as people know them: `Task.by_owner`.
        what: The attributes whose values a lookup names, as people read them.
        definition: A description: an index with another one has other rows.
        places: The two places that its rows can have. A deployment that changes the index builds the new rows in the other
            place, so the former rows stay in use until then.
        place: The place of its rows; see `use_place`.
    """

    __slots__ = (
        "_declared",
        "_group_at",
        "_order",
        "_order_at",
        "_parts",
        "_prefix",
        "definition",
        "entity_type",
        "is_unique",
        "label",
        "name",
        "place",
        "places",
        "what",
    )

    def __init__(self, entity_type: EntityType, name: str, declared: DeclaredIndex) -> None:
        self.entity_type = entity_type
        self._declared = declared
        self.name = name
        self.label = f"{entity_type.name}.{name}"
        self.is_unique = declared.is_unique
        self._parts: tuple[_Part, ...] = ()
        self._order: _Part | None = None
        self._group_at: tuple[int, ...] = ()
        self._order_at = -1
        first = f"{entity_type.stored_name}.{name}"
        self.places = (first, first + _OTHER)
        self.use_place(first)
        self.what = ", ".join(map(str, declared.attributes))
        self.definition = ""

    def complaints(self, *, is_foreign: bool) -> list[str]:
        """Take the types of the attributes, and return the mistakes of the declaration."""
        entity_type, name = self.entity_type, self.name
        mistakes = list(self._bind())
        if is_foreign:
            mistakes = ["indexes belong to the application of the class; leave it out here"]
        if name in RESERVED or name in entity_type.attributes or name in entity_type.methods:
            mistakes.append("the name is taken")
        if len(name.encode()) > NAME_BYTES_MAX:
            mistakes.append(f"the name of an index takes at most {NAME_BYTES_MAX} bytes")
        return [f"{self._declared.where}: {entity_type.name}.{name}: {each}" for each in mistakes]

    def _bind(self) -> Iterator[str]:
        declared, types = self._declared, self.entity_type.attributes
        types_of_index: list[str] = []
        names = [*declared.attributes, *([declared.order] if declared.order is not None else [])]
        if not names:
            yield 'it needs attributes, or order="…": an attribute that orders all entities'
        if declared.order is not None and self.entity_type.personal:
            yield (
                f"order={declared.order!r} would keep values of persons where their erasure does not reach; leave it out, and "
                "sort the result of the lookup"
            )
        parts = []
        for number, name in enumerate(names):
            has_order = number == len(declared.attributes)
            if name not in types:
                owner = self.entity_type.name
                yield (
                    f"{name!r} is the key of {owner}, and an index takes attributes; {owner}(…) finds an entity by its key"
                    if name == self.entity_type.key_name
                    else f"{name!r} is not an attribute of {owner}, which has {', '.join(types) or 'none'}"
                )
                continue
            ordered = ordered_by(types[name], has_order=has_order)
            if isinstance(ordered, str):
                yield f"{name}: {ordered}"
                continue
            decoder = msgspec.msgpack.Decoder(types[name], dec_hook=decode_reference)
            place = list(types).index(name) + 1
            parts.append(_Part(name, place, decoder.decode, ordered, _way_of(types[name])))
            types_of_index.append(f"{name}: {described(types[name])[0]}")
        self._order = parts.pop() if declared.order is not None and parts else None
        self._parts = tuple(parts)
        word = "unique" if declared.is_unique else "index"
        ordering = "" if declared.order is None else f" ordered by {types_of_index[-1:]}"
        self.definition = f"{word} {types_of_index[: len(parts)]}{ordering}"

    @property
    def parts(self) -> tuple[_Part, ...]:
        """The attributes on whose values it depends."""
        return (*self._parts, self._order) if self._order else self._parts

    def learn(self, places: Sequence[int]) -> None:
        """Learn which of the values of a row it takes; see `IndexedValues`."""
        self._group_at = tuple(places.index(part.place) for part in self._parts)
        self._order_at = places.index(self._order.place) if self._order else -1

    def use_place(self, place: str) -> None:
        """Take one of `places` as that of the rows."""
        self.place = place
        self._prefix = prefix_of(place)

    @property
    def stored_definition(self) -> str:
        """The definition, and the shape of the class: other attributes may be former ones, and other rows then.

        `engine.built_indexes` knows which changes of a shape leave the rows as they are.
        """
        return f"{self.definition}{OF_ROWS}{self.entity_type.shape.tag:08x}"

    @property
    def text(self) -> str:
        """The index as people read it: `by_owner(owner), ordered by due`."""
        ordering = f", ordered by {self._order.name}" if self._order else ""
        return f"{self.name}({self.what}){', unique' if self.is_unique else ''}{ordering}"

    def row_of(self, group: bytes) -> EntityKey:
        """Return the key of the row of a value, or of the root of its rows."""
        if isinstance(self.entity_type, PersonalType):
            return EntityKey(f"{self._prefix}~{self.entity_type.pseudonym(group)}")
        if len(group) > _SHORT:
            return EntityKey(f"{self._prefix}={blake2b(group, digest_size=32).hexdigest()}")
        return EntityKey(f"{self._prefix}{group.hex()}")

    def group_of(self, values: Sequence[bytes]) -> bytes | None:
        """Return the value by which an entity is found; None if it cannot be found.

        Args:
            values: The values of its row; see `IndexedValues`.
        """
        places = self._group_at
        if len(places) == 1:
            value = values[places[0]]
            return None if self.is_unique and value == NONE else value
        group = [values[place] for place in places]
        return None if self.is_unique and NONE in group else b"".join(group)

    def entry_of(self, values: Sequence[bytes], end: bytes) -> bytes:
        """Return the entry of an entity among those of its value.

        Args:
            values: The values of its row; see `IndexedValues`.
            end: The end of all its entries; see `entry_end`.
        """
        return values[self._order_at] + end if self._order else end

    def taken(self, key: EntityKey, other: EntityKey, row: bytes) -> NotUnique:
        """Return the error about an entity whose value another entity has; `row` is its readable row."""
        raws = _RAWS(row)
        values = [f"{part.name} {_shown(part.decode(raws[part.place]))}" for part in self._parts]
        first, second = (self._shown(each) for each in (key, other))
        it = "it" if len(values) == 1 else "them"
        return NotUnique(
            f"{first} cannot have {', '.join(values)}: {second} has {it}, and {self._rule}"
        )

    def shared(self, text: str, other: str) -> NotUnique:
        """Return the error about two stored entities that have the same value."""
        name = self.entity_type.name
        return NotUnique(
            f"{name} {text!r} and {name} {other!r} have the same {self.what}, and {self._rule}"
        )

    @property
    def _rule(self) -> str:
        return f"{self.what} {'is unique' if len(self._parts) == 1 else 'are unique together'}"

    def _shown(self, key: EntityKey) -> str:
        return f"{self.entity_type.name} {split_entity_key(key)[1]!r}"

    def holder(self, values: Sequence[Any]) -> Any:
        """Return the entity with unique values, or None; see `UniqueLookup`."""
        txn = self._reachable()
        group = self._group_of(values)
        for text, _ in self._touched(txn, group):
            return self.entity_type.of_text(text)
        data = txn.row(self.row_of(group))
        if data is None:
            return None
        text = holder_in(data)
        if self._is_touched(txn, self.entity_type.prefix + text):
            return None  # it has another value now
        return self.entity_type.of_text(text)

    def entities(self, values: Sequence[Any], first: int | None, last: int | None) -> list[Any]:
        """Return the entities with values; see `Lookup`."""
        txn = self._reachable()
        if first is not None and last is not None:
            raise UserError(f"{self.label}: first= and last= exclude each other")
        count = last if first is None else first
        if count is not None and (type(count) is not int or count < 0):
            raise UserError(f"{self.label}: {shown(count)} cannot be a number of entities")
        group = self._group_of(values)
        touched = sorted(
            (entry for _, entry in self._touched(txn, group)), reverse=last is not None
        )
        stored = SortedEntries(Pages(txn.row), self.row_of(group))
        entries = stored.ascending() if last is None else stored.descending()
        prefix = self.entity_type.prefix
        untouched = (each for each in entries if not self._is_touched(txn, prefix + _text_in(each)))
        every = merge(untouched, touched, reverse=last is not None)
        texts = [_text_in(entry) for entry in islice(every, count)]
        if last is not None:
            texts.reverse()
        return [self.entity_type.of_text(text) for text in texts]

    def keys_behind(
        self, values: Mapping[str, Any], after: str, read: Read
    ) -> Iterator[str] | None:
        """Yield the texts of the keys of the entities with these values in a state, in order, behind a text.

        Args:
            values: Values by attribute, of the types of the attributes.
            after: Empty for all keys.
            read: Returns a row of the state.

        Returns:
            None if the index cannot tell them: a value is not in it, or many entities have it and the index has another order.
            Only keys without `NUL` are in order, and all that come before the first key with it.
        """
        if not self._parts or not all(part.name in values for part in self._parts):
            return None
        try:
            group = self._group_of([values[part.name] for part in self._parts])
        except (Unencodable, UserError):  # as NaN, or None of a unique index
            return None
        row = self.row_of(group)
        texts: Iterable[str]
        entries = SortedEntries(Pages(read), row)
        if self.is_unique:
            data = read(row)
            texts = [] if data is None else [holder_in(data)]
        elif self._order is None:
            # The length behind a key is compared with a NUL of a longer key, and comes behind it.
            texts = map(_text_in, entries.ascending(after.encode()))
        else:
            texts = sorted(map(_text_in, islice(entries.ascending(), _SORTED_MAX + 1)))
            if len(texts) > _SORTED_MAX:
                return None
        return (text for text in texts if text > after)

    def _reachable(self) -> Transaction:
        txn = current()
        if not txn.reaches(self.entity_type):
            raise txn.stranger(self.entity_type)
        return txn

    def _group_of(self, values: Sequence[Any]) -> bytes:
        if len(values) != len(self._parts):
            raise UserError(
                f"{self.label} takes {self.what or 'no value'}, got {len(values)} values"
            )
        group = []
        for part, value in zip(self._parts, values, strict=True):
            try:
                group.append(self._bytes_of(part, value))
            except Unencodable as error:
                raise Unencodable(f"{self.label}: {part.name}: {error}") from error
        if self.is_unique and NONE in group:
            raise UserError(
                f"{self.label}: None is in no unique index, because any number of entities may have it"
            )
        return b"".join(group)

    def _is_touched(self, txn: Transaction, key: Any) -> bool:
        """Say whether a transaction may have changed an entity; one that it only knows to exist is as its row says."""
        return key in txn.deleted or txn.is_live(self.entity_type, txn.instances.get(key))

    def _touched(self, txn: Transaction, group: bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the text of the key, and the entry, of each entity that the transaction has touched and that has a value now.

        The rows of the index have the state before the transaction, so entities that it has touched are left out there.
        """
        size = len(self.entity_type.prefix)
        for key, values in self._having(txn, group):
            order = self._now(values, (self._order,)) if self._order else b""
            text = key[size:]
            yield text, order + entry_end(text)

    def _having(self, txn: Transaction, group: bytes) -> list[tuple[EntityKey, Mapping[str, Any]]]:
        """Return the keys and the attributes of these entities, in the order in which they were touched."""
        entity_type = self.entity_type
        if len(txn.before) > FEW:
            if txn.lookups is None:
                txn.lookups = {}
            if self not in txn.lookups:
                txn.lookups[self] = _Touched(entity_type, self._parts, self._now)
            touched: _Touched = txn.lookups[self]
            return touched.having(txn, group)
        prefix, instances = entity_type.prefix, txn.instances
        having: list[tuple[EntityKey, Mapping[str, Any]]] = []
        for key in txn.before:
            if key.startswith(prefix) and txn.is_live(entity_type, instances.get(key)):
                values = _get(instances[key], "__dict__")
                if self._now(values, self._parts) == group:
                    having.append((key, values))
        return having

    def _now(self, values: Mapping[str, Any], parts: Iterable[_Part]) -> bytes:
        """Return the bytes of attributes that a handler may have changed in any way."""
        try:
            return b"".join([self._bytes_of(part, values[part.name]) for part in parts])
        except KeyError as error:
            raise Unencodable(f"{self.entity_type.name} lacks its attribute {error}") from error

    def _bytes_of(self, part: _Part, value: Any) -> bytes:
        """Return the bytes of a value that code of the application has given."""
        try:
            return part.ordered(value)
        except Unencodable as error:
            try:  # an attribute may hold a value that is stored as one of another type, such as 3 for 3.0
                stored = self.entity_type.encode_some({part.name: value})[part.place]
            except Unencodable:
                raise error from None
            return part.ordered(part.decode(msgspec.Raw(stored)))


class _Touched:
    """The entities of a class that a transaction has touched, by the value by which an index finds them.

    Handlers change attributes in any way. So each lookup compares the attributes of all of them with those of the lookup before, by
    identity, as values in an index never change themselves. Bytes are made of new and changed ones alone.
    """

    __slots__ = (
        "_before",
        "_by_group",
        "_columns",
        "_entity_type",
        "_groups",
        "_keys",
        "_names",
        "_now",
        "_parts",
    )

    def __init__(
        self,
        entity_type: EntityType,
        parts: Sequence[_Part],
        now: Callable[[Mapping[str, Any], Iterable[_Part]], bytes],
    ) -> None:
        self._entity_type = entity_type
        self._names = [part.name for part in parts] or [entity_type.key_name]
        self._parts = parts
        self._now = now
        self._before = 0
        self._keys: list[EntityKey] = []
        self._columns: list[list[Any]] = [[] for _ in self._names]
        self._groups: list[bytes] = []
        self._by_group: dict[bytes, dict[int, None]] = {}

    def having(self, txn: Transaction, group: bytes) -> list[tuple[EntityKey, Mapping[str, Any]]]:
        """Return the keys and the attributes of the entities that have a value now; see `Index._having`."""
        try:
            new = [*islice(reversed(txn.before), len(txn.before) - self._before)]
            self._keys += [key for key in new[::-1] if key.startswith(self._entity_type.prefix)]
            self._before = len(txn.before)
            every = self._attributes(txn)
            self._follow(every)
        except BaseException:
            txn.lookups = None  # a part of it has followed
            raise
        return [(self._keys[at], every[at]) for at in sorted(self._by_group.get(group, ()))]

    def _attributes(self, txn: Transaction) -> list[Any]:
        """Return the attributes of each entity; None if it is not live."""
        held = list(map(txn.instances.get, self._keys))
        if {*map(type, held)} == {self._entity_type.cls}:
            return [each.__dict__ for each in held]
        is_live = txn.is_live
        return [
            _get(each, "__dict__") if is_live(self._entity_type, each) else None for each in held
        ]

    def _follow(self, every: list[Any]) -> None:
        """Take the changes since the lookup before."""
        try:
            columns = [[each[name] for each in every] for name in self._names]
        except (KeyError, TypeError):  # one lacks the attribute, or is not live
            columns = [
                [MISSING if each is None else each.get(name, MISSING) for each in every]
                for name in self._names
            ]
        known = len(self._groups)
        changed = {*range(known, len(every))}
        for now, former in zip(columns, self._columns, strict=True):
            if not all(map(is_, now, former)):
                changed |= {at for at in range(known) if now[at] is not former[at]}
        self._groups += [NO_GROUP] * (len(every) - known)
        for at in sorted(changed):
            self._by_group.get(self._groups[at], {}).pop(at, None)
            self._groups[at] = NO_GROUP if every[at] is None else self._now(every[at], self._parts)
            if every[at] is not None:
                self._by_group.setdefault(self._groups[at], {})[at] = None
        self._columns = columns


def prefix_of(place: str) -> str:
    """Return the beginning of the keys of the rows of an index, by its `place`."""
    return entity_key(INDEX, f"{place}/")


def name_in(place: str) -> str:
    """Return the stored name of the class, and the name of the index, by a place of its rows: `Task.by_owner`."""
    return place.removesuffix(_OTHER)


def class_of(place: str) -> str:
    """Return the stored name of the class of an index, by a place of its rows."""
    return place.partition(".")[0]


def _shown(value: Any) -> str:
    """Return a value that was read from a row, for an error."""
    reference = reference_type(type(value))
    if reference is not None:
        return f"{name_of(type(value))} {reference.text_of(value)!r}"
    return f"{name_of(type(value))}.{value.name}" if is_enum(type(value)) else shown(value)


def _opened(entity_type: EntityType, text: str, row: bytes | None) -> bytes | None:
    return None if row is None else entity_type.opened(entity_type.key_at(text), row)


def _way_of(annotation: Any) -> str:
    """Return how the compiled implementation makes bytes of the values of a type."""
    inner = [each for each in typing.get_args(annotation) if each is not type(None)]
    plain = inner[0] if len(inner) == 1 and typing.get_origin(annotation) in UNIONS else annotation
    if typing.get_origin(plain) is typing.Literal:
        plain = next(type(each) for each in typing.get_args(plain) if each is not None)
    if plain is str or reference_type(plain) is not None:
        return "text"
    return "int" if plain is int else "python"


def entry_end(text: str) -> bytes:
    """Return the end of the entries of an entity, which names it; `text` is that of its key."""
    data = text.encode()
    return data + len(data).to_bytes(_LENGTH, "big")


def _text_in(entry: bytes) -> str:
    size = int.from_bytes(entry[-_LENGTH:], "big")
    return entry[-_LENGTH - size : -_LENGTH].decode()


def declare_indexes(cls: type, declaration: Declaration) -> None:
    """Give an entity class the indexes that it declares; `bind_indexes` gives them their types."""
    entity_type: EntityType = cls.__reference__  # type: ignore[attr-defined]
    made = {name: Index(entity_type, name, each) for name, each in declaration.indexes.items()}
    for name, each in made.items():
        setattr(cls, name, UniqueLookup(each) if each.is_unique else Lookup(each))
    entity_type.indexes = tuple(made.values())


def bind_indexes(entity_type: EntityType, *, is_foreign: bool) -> list[str]:
    """Take the types of the attributes in the indexes of a class; return the complaints.

    Args:
        is_foreign: Whether the class only declares the use of a class of another application.
    """
    indexes: tuple[Index, ...] = entity_type.indexes
    complaints = [text for each in indexes for text in each.complaints(is_foreign=is_foreign)]
    values = IndexedValues(part for each in indexes for part in each.parts)
    entity_type.indexed_values, entity_type.index_places = values, values.places
    for each in indexes:
        each.learn(values.places)
    return complaints


class IndexChanges:
    """The changes of indexes that changes of entities make.

    Args:
        read: Returns a row of the state before the changes.
    """

    __slots__ = ("_claims", "_left", "_pages", "_read")

    def __init__(self, read: Read) -> None:
        self._read = read
        self._pages = Pages(read)
        self._left: dict[EntityKey, EntityKey] = {}
        self._claims: dict[EntityKey, tuple[EntityKey, Index, bytes]] = {}

    def note(
        self, entity_type: EntityType, key: EntityKey, before: bytes | None, after: bytes | None
    ) -> None:
        """Note the change of an entity; raises `NotUnique` if another change has given the same value to another entity."""
        text = key[len(entity_type.prefix) :]
        if entity_type.personal:
            before, after = (_opened(entity_type, text, row) for row in (before, after))
        indexed: IndexedValues = entity_type.indexed_values
        if before is not None and after is not None and indexed.are_same(before, after):
            return
        was = None if before is None else indexed.of(before)
        now = None if after is None else indexed.of(after)
        end = entry_end(text)
        for each in entity_type.indexes:
            old = None if was is None else each.group_of(was)
            new = None if now is None else each.group_of(now)
            if each.is_unique:
                if old != new:
                    self._claim(each, key, (old, new), after)
                continue
            former = b"" if was is None else each.entry_of(was, end)
            present = b"" if now is None else each.entry_of(now, end)
            if old != new or former != present:
                self._move(each, (old, former), (new, present))

    def _move(
        self, each: Index, out: tuple[bytes | None, bytes], into: tuple[bytes | None, bytes]
    ) -> None:
        """Remove the entry of an entity, and add another one; each with its value, None without one."""
        (old, former), (new, present) = out, into
        entries = None
        if old is not None:
            entries = SortedEntries(self._pages, each.row_of(old))
            entries.remove(former)
        if new is not None:
            if entries is None or new != old:
                entries = SortedEntries(self._pages, each.row_of(new))
            entries.insert(present)

    def _claim(
        self,
        each: Index,
        key: EntityKey,
        groups: tuple[bytes | None, bytes | None],
        row: bytes | None,
    ) -> None:
        old, new = groups
        if old is not None:
            self._left[each.row_of(old)] = key
        if new is not None and row is not None:
            name = each.row_of(new)
            if name in self._claims:
                raise each.taken(key, self._claims[name][0], row)
            self._claims[name] = key, each, row

    def rows(self) -> dict[EntityKey, bytes | None]:
        """Return the rows of indexes that change.

        Raises:
            NotUnique: Two entities would have the same value of a unique index.
        """
        changed: dict[EntityKey, bytes | None] = {}
        for name in dict.fromkeys((*self._left, *self._claims)):
            data = self._read(name)
            former = None if data is None else holder_in(data)
            claim = self._claims.get(name)
            left = name in self._left
            if claim is None:
                changed[name] = None
                continue
            key, each, row = claim
            text = split_entity_key(key)[1]
            if former is not None and not left:
                raise each.taken(key, entity_key(split_entity_key(key)[0], former), row)
            if text != former:
                changed[name] = encode_holder(text)
        return changed | self._pages.changes()


def change_indexes(
    txn: Transaction, writes: dict[EntityKey, bytes | None], classes: Mapping[str, EntityType]
) -> None:
    """Add the rows of indexes to the writes of a transaction.

    Args:
        classes: The classes with indexes, by stored name.

    Raises:
        NotUnique: Two entities would have the same value of a unique index.
    """
    changes = IndexChanges(txn.row)
    try:
        for key, after in writes.items():
            entity_type = classes.get(split_entity_key(key)[0])
            if entity_type is not None:
                changes.note(entity_type, key, txn.before[key], after)
        rows = changes.rows()
    except IntegrityError as error:  # the request is not the cause
        txn.damage = error
        raise
    for key in rows:
        txn.before.setdefault(key, None)  # a new page, which no other transaction can have
    writes.update(rows)


def left_indexes(
    classes: Mapping[str, EntityType], keys: Iterable[EntityKey], read: Read
) -> dict[EntityKey, bytes | None]:
    """Return the changes of indexes that the deletion of entities makes.

    Args:
        classes: The classes with indexes, by stored name.
        keys: The keys of rows, of any class; rows that do not exist are left out.
        read: Returns a row of the state.
    """
    changes = IndexChanges(read)
    for key in keys:
        name, text = split_entity_key(key)
        entity_type = classes.get(name)
        row = None if entity_type is None else read(key)
        if entity_type is not None and row is not None:
            changes.note(entity_type, key, entity_type.present(entity_type.key_at(text), row), None)
    return changes.rows()
