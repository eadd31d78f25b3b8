"""`EventFilter`: the values that the fields of an event must have, for a follower that takes a part of a stream.

Events are compared as they are stored, and no code of the application runs.
"""

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.base.annotations import UNIONS
from penstock.base.lowering import lower_of
from penstock.base.record import (
    Field,
    RecordKind,
    default_of,
    factory_of,
    fields_of,
    is_record,
    kind_of,
    tag_of_record,
)
from penstock.base.schema import ENCODER
from penstock.errors import RequestError
from penstock.model.application import unknown
from penstock.model.streams.stream import Stream, type_name
from penstock.model.value_filter import ValueFilter, has_filter, texts_of_filters, value_filter

FOLLOW_FIELDS: Final = ("from", "limit", "wait", "ticket")
"""The fields of the query string of a follower that are no filters."""

_Test = Callable[[Any], bool]
"""Says whether a stored event fits."""

_ABSENT: Final = object()
_decode: Final = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The values that some fields of the events of a stream must have. Equal texts of one stream mean equal filters."""

    texts: tuple[tuple[str, str], ...]
    _tests: tuple[_Test, ...] = field(compare=False)

    def part_of(self, events: list[Any]) -> list[Any]:
        """Return the stored events that fit."""
        return [event for event in events if any(fits(event) for fits in self._tests)]


def follow_texts(where: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts that stand for the values of filters, by the names of fields.

    Raises:
        RequestError: No filter can have such a name or value.
    """
    if taken := [name for name in where if name in FOLLOW_FIELDS]:
        raise RequestError(
            f"a stream is not filtered by {taken[0]}, which means something else to a gateway; look at the events in the loop"
        )
    return texts_of_filters(where)


def event_filter(stream: Stream[Any], texts: Mapping[str, str]) -> EventFilter:
    """Return the filter for values as texts, by the names that fields have in JSON; the tag of a `Struct` is one, too.

    Of a stream with several kinds of records, only those fit that have all fields.

    Raises:
        RequestError: The events have no such field, or no value of it has such a text.
    """
    records = [*_records_of(stream.annotation)]
    known = {name for record in records for name in _filter_fields(record)}
    if lacking := [name for name in texts if name not in known]:
        message = unknown("field of the query string", lacking[0], [*FOLLOW_FIELDS, *sorted(known)])
        if not known:
            message += (
                f"; filters name fields of a record, and the events of {stream.name} are "
                f"{type_name(stream.annotation)}"
            )
        raise RequestError(message)
    tests: list[_Test] = []
    refusals: list[RequestError] = []
    for record in records:
        if _filter_fields(record).keys() >= texts.keys():
            try:
                tests.append(_test_of(stream, record, texts))
            except RequestError as refusal:  # another kind may have such a value
                refusals.append(refusal)
    if refusals and not tests:
        raise refusals[0]
    return EventFilter(tuple(sorted(texts.items())), tuple(tests))


def filters_of(stream: Stream[Any]) -> dict[str, Any]:
    """Return the types of the fields that followers of a stream can name."""
    fields: dict[str, Any] = {}
    for record in _records_of(stream.annotation):
        fields |= _filter_fields(record)
    return fields


def _filter_fields(record: Any) -> dict[str, Any]:
    """Return the types of the fields of a record that filters can name."""
    tag = tag_of_record(record)
    tags = {} if tag is None else {tag[0]: type(tag[1])}
    fields = {each.member.wire: each.annotation for each in fields_of(record)}
    named = {name: each for name, each in fields.items() if has_filter(each)}
    return {name: each for name, each in (tags | named).items() if name not in FOLLOW_FIELDS}


def _records_of(annotation: Any) -> Iterator[Any]:
    members = typing.get_args(annotation) if typing.get_origin(annotation) in UNIONS else ()
    yield from filter(is_record, members or (annotation,))


def _test_of(stream: Stream[Any], record: Any, texts: Mapping[str, str]) -> _Test:
    """Return whether a stored event is such a record, and has the values."""
    wanted: list[tuple[str | int, Any, ValueFilter]] = []
    if (tag := tag_of_record(record)) is not None:
        name, own = tag
        if texts.get(name, str(own)) != str(own):
            raise RequestError(f"stream {stream.name}: {name} is no {texts[name]!r}")
        # First: fields of other records have the same names, and other types.
        wanted.append((name, _ABSENT, ValueFilter(own, own)))
    for place, each in enumerate(fields_of(record)):
        wire = each.member.wire
        if wire in texts:
            label = f"stream {stream.name}: {wire}"
            chosen = value_filter(label, each.annotation, texts[wire])
            # A NamedTuple is stored as a list.
            is_list = kind_of(record) is RecordKind.NAMED_TUPLE
            wanted.append((place if is_list else wire, _default_of(record, each), chosen))

    def fits(event: Any) -> bool:
        return all(value.fits(_at(event, at, default)) for at, default, value in wanted)

    return fits


def _at(event: Any, place: str | int, default: Any) -> Any:
    if isinstance(place, str):
        return event.get(place, default) if isinstance(event, dict) else _ABSENT
    if not isinstance(event, list):
        return _ABSENT
    return event[place] if place < len(event) else default


def _default_of(record: Any, each: Field) -> Any:
    """Return the stored form of a default: an older event lacks a field that the record has now."""
    member = each.member
    if not member.has_default or member.is_optional or factory_of(record, member.name) is not None:
        return _ABSENT
    value, lower = default_of(record, member.name), lower_of(each.annotation)
    return _decode(ENCODER.encode(value if lower is None else lower(value)))
