"""The canonical encoding: one value, one row of bytes, and back, for every type there is."""

import random
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from types import GenericAlias
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.key_text import KEY_BYTES_MAX, decode_key, encode_key
from penstock.base.lowering import alike, lower_any, lower_reply
from penstock.base.schema import (
    complaints_of,
    entities_in,
    is_exact,
)
from penstock.errors import Unencodable
from penstock.model.entity import Entity, key
from penstock.model.entity_type import EntityType


class Colour(Enum):
    RED = 1
    BLUE = 2


class Thing(Entity):
    name: str = key()


ZONES = [UTC, ZoneInfo("Europe/Berlin"), timezone(timedelta(hours=-5, seconds=1))]
MOMENTS = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 -- hypothesis wants bounds without zones
    datetime(9999, 12, 30),  # noqa: DTZ001
    timezones=st.sampled_from(ZONES),
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    str: st.text(),
    bool: st.booleans(),
    float: st.floats(),
    bytes: st.binary(),
    type(None): st.none(),
    datetime: MOMENTS,
    date: st.dates(),
    time: st.times(),
    timedelta: st.timedeltas(),
    Decimal: st.decimals(allow_nan=False),
    UUID: st.uuids(),
    Colour: st.sampled_from(Colour),
    Thing: st.text(min_size=1, max_size=9).map(lambda name: Thing(name)),
}
HASHABLE = [int, str, bytes, date, datetime, UUID, Colour, Thing]

Typed = tuple[Any, st.SearchStrategy[Any]]


def composed(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    keys = st.sampled_from([(one, SCALARS[one]) for one in HASHABLE])
    pair_keys = st.tuples(keys, keys).map(pair_of)
    names = st.one_of(keys, pair_keys)
    return st.one_of(
        inner.map(lambda one: (GenericAlias(list, one[0]), st.lists(one[1], max_size=4))),
        inner.map(
            lambda one: (
                GenericAlias(tuple, (one[0], ...)),
                st.lists(one[1], max_size=4).map(tuple),
            )
        ),
        st.tuples(inner, inner).map(pair_of),
        inner.map(lambda one: (one[0] | None, st.none() | one[1])),
        names.map(lambda one: (GenericAlias(set, one[0]), st.sets(one[1], max_size=6))),
        names.map(lambda one: (GenericAlias(frozenset, one[0]), st.frozensets(one[1], max_size=6))),
        st.tuples(names, inner).map(dictionary_of),
        st.lists(inner, min_size=1, max_size=3).map(dataclass_of),
    )


def pair_of(pair: tuple[Typed, Typed]) -> Typed:
    (first, firsts), (second, seconds) = pair
    return GenericAlias(tuple, (first, second)), st.tuples(firsts, seconds)


def dictionary_of(pair: tuple[Typed, Typed]) -> Typed:
    (name, names), (value, values) = pair
    return GenericAlias(dict, (name, value)), st.dictionaries(names, values, max_size=6)


def dataclass_of(fields: list[Typed]) -> Typed:
    made: Any = make_dataclass("Made", [(f"f{i}", one) for i, (one, _) in enumerate(fields)])
    made.__module__ = __name__
    return made, st.builds(made, *(values for _, values in fields))


TYPED = st.recursive(st.sampled_from(list(SCALARS.items())), composed, max_leaves=5)


def kind_of(annotation: Any) -> EntityType:
    kind = EntityType(Thing, "name", "here:1")
    kind.bind(str, {"it": annotation})
    kind.settle()
    return kind


def shuffled(value: Any, source: random.Random) -> Any:
    """Build every set and dictionary in another order."""
    match value:
        case dict():
            pairs = [(name, shuffled(one, source)) for name, one in value.items()]
            source.shuffle(pairs)
            return dict(pairs)
        case set() | frozenset():
            members = list(value)
            source.shuffle(members)
            return type(value)(members)
        case list() | tuple():
            return type(value)(shuffled(one, source) for one in value)
        case _:
            return value


@settings(max_examples=100)
@given(typed=TYPED, data=st.data(), seed=st.integers())
def test_encoding_is_canonical_and_reversible(typed: Typed, data: st.DataObject, seed: int) -> None:
    """A value decodes to itself; however it was filled, and encoded again, the bytes are the same."""
    annotation, values = typed
    value = data.draw(values)
    kind = kind_of(annotation)
    first = kind.encode_change({"name": "k", "it": value}, None)
    assert first is not None
    decoded = kind.decode("k", first)["it"]
    assert alike(value, decoded)
    again = {"name": "k", "it": shuffled(value, random.Random(seed))}
    assert kind.encode_change(again, first) is None
    assert kind.encode_change({"name": "k", "it": decoded}, first) is None


@settings(max_examples=50)
@given(typed=TYPED, data=st.data())
def test_replies_do_not_depend_on_the_order_of_filling(typed: Typed, data: st.DataObject) -> None:
    """A result is lowered to the same bytes, however its sets and dictionaries were filled."""
    value = data.draw(typed[1])
    lowered = msgspec.msgpack.encode(lower_reply(value))
    assert lowered == msgspec.msgpack.encode(lower_reply(shuffled(value, random.Random(1))))


@given(
    typed=st.sampled_from(
        [
            (str, st.text(min_size=1, max_size=100)),
            (int, st.integers(-(2**63), 2**64 - 1)),
            (UUID, st.uuids()),
            (date, st.dates()),
            (datetime, MOMENTS.map(lambda one: one.astimezone(UTC))),
        ]
    ),
    data=st.data(),
)
def test_keys_go_to_text_and_back(typed: Typed, data: st.DataObject) -> None:
    """A key's text gives back the key, and equal keys have one text."""
    annotation, values = typed
    value = data.draw(values)
    text = encode_key(value, annotation)
    assert 0 < len(text.encode()) <= KEY_BYTES_MAX
    assert decode_key(text, annotation) == value
    assert encode_key(decode_key(text, annotation), annotation) == text


@pytest.mark.parametrize(
    ("value", "annotation", "what"),
    [
        (2**64, int, "64 bits"),
        (-(2**63) - 1, int, "64 bits"),
        (datetime(2026, 1, 1), datetime, "no time zone"),  # noqa: DTZ001 -- that is the point
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), datetime, "cannot be a key"),
        ("", str, "1 to 400 bytes"),
        ("\ud800", str, "cannot be a key"),
    ],
)
def test_key_that_no_table_can_show_is_refused(value: Any, annotation: Any, what: str) -> None:
    """A key is a whole number of 64 bits, an instant, a text: nothing that reads as another key."""
    with pytest.raises(Unencodable, match=what):
        encode_key(value, annotation)


@dataclass
class Leaf:
    of: "Leaf | None" = None
    thing: Thing | None = None


@dataclass(frozen=True)
class Frozen:
    it: int


@dataclass
class Broken:
    what: object


@dataclass
class Lost:
    what: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("annotation", "what"),
    [
        (object, "object is not a type"),
        (list[object], "object is not a type"),
        (dict[str, list[complex]], "complex is not a type"),
        (Broken, "Broken.what: object is not a type"),
        (Lost, "unknown type 'Nowhere'"),
        (Thing | str, "union"),
        (int | str | date | datetime | bytes | UUID, "union"),
        (list[int] | tuple[int, ...], "union"),
        (range, "range is not a type"),
        (Leaf | dict[str, int], "union"),
        (dict[frozenset[int], int], "frozenset[int] cannot be the key of a dictionary"),
        (dict[Frozen, int], "Frozen cannot be the key of a dictionary"),
        (dict[tuple[int, list[int]], int], "list[int] cannot be the key"),
        (set[Leaf], "Leaf cannot be the member of a set"),
        (set[dict[str, int] | None], "dict[str, int] cannot be the member of a set"),
    ],
)
def test_unsupported_annotation_is_explained(annotation: Any, what: str) -> None:
    """A value that cannot be stored, or is ambiguous when decoded, is named with its bad part."""
    assert [one for one in complaints_of(annotation) if what in one]


@pytest.mark.parametrize(
    "annotation",
    [*SCALARS, Leaf, list, dict[Thing, set[int]], Thing | None, Any, set[Frozen], set[Thing]],
)
def test_supported_annotation_has_no_complaints(annotation: Any) -> None:
    """Every type of the design, alone and composed, is accepted."""
    assert complaints_of(annotation) == []


def test_entities_are_found_at_any_depth() -> None:
    """The entities that an annotation names are found in containers and dataclasses, once round."""
    assert entities_in(dict[str, list[Leaf]]) == [Thing]
    assert entities_in(int) == []


def test_only_lossless_annotations_are_exact() -> None:
    """An annotation that may widen a value is never taken for exact."""
    assert is_exact(dict[str, list[tuple[Thing, int]]])
    assert not any(map(is_exact, [float, list[float], Any, dict, Colour, Leaf, int | float]))


def test_any_value_is_lowered_by_its_own_types() -> None:
    """Without an annotation, sets and dictionaries are ordered by their content."""
    value = {"b": {3, 1}, "a": ({(2, 1): None, (1, 2): [Leaf()]},)}
    assert lower_any(value) == {
        "a": [{(1, 2): [{"of": None, "thing": None}], (2, 1): None}],
        "b": [1, 3],
    }
    assert list(lower_any(value)) == ["a", "b"]


def test_references_are_refused_where_no_annotation_names_them() -> None:
    """A reference inside `Any` would be a bare text afterwards, so it is refused."""
    with pytest.raises(Unencodable, match="names no entity"):
        kind_of(Any).encode({"name": "k", "it": [Thing("a")]})
