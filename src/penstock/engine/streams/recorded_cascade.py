"""The recorded results of a cascade, and their comparison with a cascade that has run again.

Results are compared as bytes. This module does no I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from penstock.base.ids import RequestId
from penstock.engine.streams.cascade import Cascade, LaterRecord, PublishedAtom


class RecordedAtom(NamedTuple):
    """An atom as the journal has it: its number in its stream, and the atom."""

    number: int
    atom: PublishedAtom


class SentRequest(NamedTuple):
    """A request that a cascade has sent and processed, with its outcome."""

    request_id: RequestId
    body: bytes
    error: str | None
    reply: bytes


@dataclass(frozen=True, slots=True)
class RecordedCascade:
    """The results of the cascade of one record.

    Attributes:
        atoms: The atoms, in order.
        sent: The requests that it has sent and processed at once, in order.
        later: The records that it has appended to the log, in order.
    """

    atoms: Sequence[RecordedAtom] = ()
    sent: Sequence[SentRequest] = ()
    later: Sequence[LaterRecord] = ()


NOTHING: Final = RecordedCascade()
"""The cascade of a record that has caused nothing."""


class AtomDifference(NamedTuple):
    """An event of an atom that differs; the event is None on a side that does not have it.

    `number` is the number of the atom in its stream; None if the journal does not have the atom. `event` is the place
    in the atom, from 0; None if one side does not have the atom, or another step has published it.
    """

    stream: str
    number: int | None
    event: int | None
    recorded: bytes | PublishedAtom | None
    replayed: bytes | PublishedAtom | None


class SentDifference(NamedTuple):
    """A sent request that differs, in its body or its outcome; None on the side that does not have it."""

    request_id: RequestId
    recorded: SentRequest | None
    replayed: SentRequest | None


class LaterDifference(NamedTuple):
    """A later record that differs, in its body or its delay; None on the side that does not have it."""

    request_id: RequestId
    recorded: LaterRecord | None
    replayed: LaterRecord | None


CascadeDifference = AtomDifference | SentDifference | LaterDifference


def sent_of(cascade: Cascade | None) -> list[SentRequest]:
    """Return the requests that a cascade has processed."""
    return [
        SentRequest(request_id, body, outcome.error, outcome.reply)
        for request_id, body, outcome in (() if cascade is None else cascade.completed)
    ]


def cascade_differences(
    recorded: RecordedCascade, cascade: Cascade | None
) -> Iterator[CascadeDifference]:
    """Yield the results of a cascade that differ from the recorded results."""
    published = [] if cascade is None else cascade.published
    if [entry.atom for entry in recorded.atoms] != published:
        for pair in _atom_pairs(recorded.atoms, published):
            yield from _event_differences(*pair)
    sent = {request.request_id: request for request in recorded.sent}
    run = {request.request_id: request for request in sent_of(cascade)}
    for name in dict.fromkeys([*sent, *run]):
        if sent.get(name) != run.get(name):
            yield SentDifference(name, sent.get(name), run.get(name))
    before = {later.request_id: later for later in recorded.later}
    after = {later.request_id: later for later in (() if cascade is None else cascade.later)}
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield LaterDifference(name, before.get(name), after.get(name))


def differing_atoms(recorded: RecordedCascade, cascade: Cascade | None) -> Iterator[str]:
    """Yield the stream of each atom that differs, or that one side does not have."""
    published = [] if cascade is None else cascade.published
    for stream, _, was, now in _atom_pairs(recorded.atoms, published):
        if was is None or now is None or was.events != now.events:
            yield stream


def _atom_pairs(
    recorded: Sequence[RecordedAtom], published: Sequence[PublishedAtom]
) -> Iterator[tuple[str, int | None, PublishedAtom | None, PublishedAtom | None]]:
    """Yield the atoms of both sides stream by stream: the stream, the recorded number, and both atoms."""
    streams = [entry.atom.stream for entry in recorded] + [atom.stream for atom in published]
    for stream in dict.fromkeys(streams):
        before = [entry for entry in recorded if entry.atom.stream == stream]
        after = [atom for atom in published if atom.stream == stream]
        for was, now in zip_longest(before, after):
            number, atom = (None, None) if was is None else was
            yield stream, number, atom, now


def _event_differences(
    stream: str, number: int | None, was: PublishedAtom | None, now: PublishedAtom | None
) -> Iterator[AtomDifference]:
    if was == now:
        return
    if was is None or now is None or was.events == now.events:
        yield AtomDifference(stream, number, None, was, now)
        return
    for at, (before, after) in enumerate(zip_longest(was.events, now.events)):
        if before != after:
            yield AtomDifference(stream, number, at, before, after)
