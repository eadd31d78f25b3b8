"""The bodies of `GET /streams` and `GET /streams/{stream}`: atoms as JSON, MessagePack or server-sent events."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct, field

from penstock.gateway.responses import json_of
from penstock.journal.atoms import StreamAtom, opened_atom
from penstock.model.event_filter import EventFilter
from penstock.model.streams.failed_atom import FailedAtom
from penstock.model.streams.stream import Stream

_EPOCH_BEGIN: Final = datetime.fromtimestamp(0, UTC)
_decode: Final = msgspec.msgpack.Decoder().decode
_pack: Final = msgspec.msgpack.Encoder().encode


class AtomBody(Struct, frozen=True):
    """An atom of a stream."""

    atom: Annotated[int, Meta(description="Its number in the stream, from 0, without gaps.")]
    events: Annotated[Any, Meta(description="The list of its events.")]
    time: Annotated[datetime, Meta(description="The time of the request that caused it.")]
    epoch: int


class AtomsBody(Struct, frozen=True):
    """Atoms of a stream, in order."""

    stream: str
    start: Annotated[int, Meta(description="The number of the first atom.")] = field(name="from")
    next: Annotated[int, Meta(description="The number to ask for next, as `from`.")]
    published: Annotated[int, Meta(description="The number of atoms that the stream has.")]
    atoms: list[AtomBody]


class FailedAtomBody(Struct, frozen=True):
    """An event of a stream of failed atoms."""

    source: Annotated[str, Meta(description="The stream of the atom.")]
    step: str
    code: str
    message: str
    events: Annotated[list[Any], Meta(description="The events of the atom.")]


class StreamBody(Struct, frozen=True):
    """A stream of the application."""

    name: str
    events: Annotated[str, Meta(description="The type of its events.")]
    publisher: Annotated[str, Meta(description="The publisher.")]
    open: Annotated[bool, Meta(description="Whether it takes appends.")]
    subscribers: Annotated[list[str], Meta(description="The consumers of its atoms.")]
    oldest: Annotated[int, Meta(description="The number of the oldest atom that is held.")]
    next: Annotated[int, Meta(description="The number of the next atom.")]
    rate: Annotated[
        float,
        Meta(
            description="Atoms in a second, on average over the last minute, or since the first epoch."
        ),
    ]


class StreamsBody(Struct, frozen=True):
    """The streams that the caller may follow."""

    streams: list[StreamBody]


class AtomBatch(NamedTuple):
    """Atoms of a stream: all from a number to another one, or those with events that a follower wants.

    Attributes:
        start: The number of the first atom, which may not exist yet.
        next: The number after the last atom.
        published: The number of atoms that the stream has.
    """

    stream: Stream[Any]
    start: int
    next: int
    atoms: Sequence[StreamAtom]
    published: int


Rendering = Callable[[AtomBatch], bytes]
"""Returns the bytes of a batch."""


def json_body(batch: AtomBatch) -> bytes:
    """Return a batch as a JSON object."""
    return json_of(_body(batch, [json_atom(batch.stream, atom) for atom in batch.atoms]))


def msgpack_body(batch: AtomBatch) -> bytes:
    """Return a batch as MessagePack, which keeps all types of the events."""
    atoms = [
        AtomBody(
            atom.number,
            msgspec.Raw(opened_atom(batch.stream.events, atom.events)),
            _time_of(atom),
            atom.epoch,
        )
        for atom in batch.atoms
    ]
    return _pack(_body(batch, atoms))


def server_sent_events(batch: AtomBatch) -> bytes:
    """Return a batch as server-sent events; the id of each is the number of the atom."""
    events = [
        b"id: %d\ndata: %b\n\n" % (atom.number, json_of(json_atom(batch.stream, atom)))
        for atom in batch.atoms
    ]
    last = batch.next - 1
    if last >= batch.start and (not batch.atoms or batch.atoms[-1].number < last):
        # Without data it is no event: after a cut, the follower goes on behind the atoms that it does not want.
        events.append(b"id: %d\n\n" % last)
    return b"".join(events)


def _body(batch: AtomBatch, atoms: list[AtomBody]) -> AtomsBody:
    return AtomsBody(batch.stream.name, batch.start, batch.next, batch.published, atoms)


def fitting_part(stream: Stream[Any], atom: StreamAtom, only: EventFilter) -> StreamAtom | None:
    """Return an atom with the events that fit a filter; None if there are none."""
    events = only.part_of(_decode(opened_atom(stream.events, atom.events)))
    return atom._replace(events=_pack(events)) if events else None


def json_atom(stream: Stream[Any], atom: StreamAtom) -> AtomBody:
    """Return an atom whose events are plain values, for JSON."""
    events = _decode(opened_atom(stream.events, atom.events))
    if stream.annotation is FailedAtom:  # the events inside are encoded, too
        events = [
            event | {"events": [_decode(data) for data in event["events"]]} for event in events
        ]
    return AtomBody(atom.number, events, _time_of(atom), atom.epoch)


def _time_of(atom: StreamAtom) -> datetime:
    return _EPOCH_BEGIN + timedelta(microseconds=atom.time_us)
