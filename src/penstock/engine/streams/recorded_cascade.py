"""The recorded results of a cascade, and their comparison with a cascade that has run again.

Results are compared as bytes. A recorded event or request that refers to a person who was erased cannot be read, so it
equals whatever comes in its place. This module does no I/O.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple

from msgspec.structs import replace

from penstock.base.ids import RequestId
from penstock.base.subject_keys import SubjectKeys
from penstock.engine.streams.cascade import Cascade, LaterRecord, PublishedAtom
from penstock.model.sealed_value import is_erased, is_erased_request


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
    recorded: RecordedCascade, cascade: Cascade | None, keys: SubjectKeys | None
) -> Iterator[CascadeDifference]:
    """Yield the results of a cascade that differ from the recorded results.

    Args:
        cascade: The cascade that has run again; None if the record has caused nothing.
        keys: The keys of the persons; None for an application without personal classes.
    """
    published = [] if cascade is None else cascade.published
    if [entry.atom for entry in recorded.atoms] != published:
        for pair in _atom_pairs(recorded.atoms, published, keys):
            yield from _event_differences(*pair)
    sent = {request.request_id: request for request in recorded.sent}
    run = {request.request_id: request for request in sent_of(cascade)}
    for name in dict.fromkeys([*sent, *run]):
        if sent.get(name) != run.get(name) and not _is_erased(keys, sent.get(name), run.get(name)):
            yield SentDifference(name, sent.get(name), run.get(name))
    before = {later.request_id: later for later in recorded.later}
    after = {later.request_id: later for later in (() if cascade is None else cascade.later)}
    for name in dict.fromkeys([*before, *after]):
        was, now = before.get(name), after.get(name)
        if was != now and not _is_erased(keys, was, now):
            yield LaterDifference(name, was, now)


def _is_erased(
    keys: SubjectKeys | None,
    was: SentRequest | LaterRecord | None,
    now: SentRequest | LaterRecord | None,
) -> bool:
    """Say whether both sides have a request, and the recorded one cannot be read any more."""
    return was is not None and now is not None and is_erased_request(keys, was.body)


def differing_atoms(
    recorded: RecordedCascade, cascade: Cascade | None, keys: SubjectKeys | None
) -> Iterator[str]:
    """Yield the stream of each atom that differs, or that a side does not have; see `cascade_differences`."""
    published = [] if cascade is None else cascade.published
    for stream, _, was, now in _atom_pairs(recorded.atoms, published, keys):
        if was is None or now is None or was.events != now.events:
            yield stream


def _atom_pairs(
    recorded: Sequence[RecordedAtom], published: Sequence[PublishedAtom], keys: SubjectKeys | None
) -> Iterator[tuple[str, int | None, PublishedAtom | None, PublishedAtom | None]]:
    """Yield the atoms of both sides stream by stream: the stream, the recorded number, and both atoms."""
    streams = [entry.atom.stream for entry in recorded] + [atom.stream for atom in published]
    for stream in dict.fromkeys(streams):
        before = [entry for entry in recorded if entry.atom.stream == stream]
        after = [atom for atom in published if atom.stream == stream]
        for was, now in zip_longest(before, after):
            number, atom = (None, None) if was is None else was
            if keys is not None and atom is not None and now is not None:
                now = _with_erased(keys, atom, now)
            yield stream, number, atom, now


def _with_erased(keys: SubjectKeys, was: PublishedAtom, now: PublishedAtom) -> PublishedAtom:
    """Return an atom with the recorded events in their places that cannot be read any more."""
    events = tuple(
        before if is_erased(keys, before) else after
        for before, after in zip(was.events, now.events, strict=False)
    )
    return replace(now, events=events + now.events[len(events) :])


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
