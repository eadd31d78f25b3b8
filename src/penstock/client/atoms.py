"""Atoms of streams at a client: the question to a gateway, and the reading of its answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec

from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import Epoch
from penstock.client.encoding import error_of, is_msgpack, path_of
from penstock.client.operation import LONG_POLL_S, HttpResponse, OutgoingRequest
from penstock.errors import OperationalError
from penstock.model.application import App
from penstock.model.event_filter import follow_texts
from penstock.model.streams.event_type import EventType
from penstock.model.streams.stream import Stream

T = TypeVar("T")

Start = int | Literal["earliest", "latest"]
"""The number of the first atom; the oldest one that is held; the next new one."""


@dataclass(frozen=True, slots=True)
class Atom(Generic[T]):
    """An atom of a stream.

    Attributes:
        number: Its number in the stream, from 0, without gaps.
        events: Its events, in order.
        time: The time of the request that caused it.
        epoch: The epoch that published it.
    """

    number: int
    events: list[T]
    time: datetime
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Changes that bring a copy of a published table to a later epoch.

    Attributes:
        changes: The changes, in order: `Put` and `Removed`, or dictionaries without the type of the table.
        epoch: The epoch of the copy, with these changes.
        is_complete: Whether the copy has all rows of the table; before, it has a part of them.
        position: Where the next page begins.
    """

    changes: list[T]
    epoch: Epoch
    is_complete: bool
    position: str


@dataclass(frozen=True, slots=True)
class FollowedStream:
    """A stream, or a table, that a client follows.

    Attributes:
        name: Its name.
        events: The type of its events; None for plain JSON.
        only: The texts of filters, by the fields of the events.
    """

    name: str
    events: EventType[Any] | None
    only: Mapping[str, str] = field(default_factory=dict)

    def request(self, start: Start, wait_s: float) -> OutgoingRequest:
        """Return the request for the atoms from a number on.

        Args:
            start: The first atom.
            wait_s: The seconds that the gateway may wait for an atom.
        """
        fields = {**self.only, "from": str(start)}
        if wait_s > 0:
            fields["wait"] = f"{min(wait_s, LONG_POLL_S):.3f}"
        path = f"{path_of('streams', self.name)}?{urlencode(fields)}"
        return OutgoingRequest("GET", path, {"Accept": JSON if self.events is None else MSGPACK})

    def page_request(self, after: str, wait_s: float) -> OutgoingRequest:
        """Return the request for the page of a table behind a position; an empty one is the beginning."""
        fields = {"after": after} if after else {}
        if wait_s > 0:
            fields["wait"] = f"{min(wait_s, LONG_POLL_S):.3f}"
        path = path_of("tables", self.name)
        path += f"?{urlencode(fields)}" if fields else ""
        return OutgoingRequest("GET", path, {"Accept": JSON if self.events is None else MSGPACK})

    def page_of(self, response: HttpResponse) -> "Page[Any]":
        """Return the page of a response; raises as `atoms_of`."""
        answer, decode = self._answer(response, _Page)
        changes = [decode(change) for change in answer.changes]
        return Page(changes, Epoch(answer.epoch), answer.complete, answer.position)

    def atoms_of(self, response: HttpResponse) -> "ReceivedAtoms":
        """Return the atoms of a response.

        Raises:
            PenstockError: The response is an error.
            OperationalError: The response cannot be read.
            Unencodable: An event does not fit the type.
        """
        answer, decode = self._answer(response, _Answer)
        atoms = [
            Atom(atom.atom, [decode(event) for event in atom.events], atom.time, Epoch(atom.epoch))
            for atom in answer.atoms
        ]
        return ReceivedAtoms(atoms, answer.next, answer.published)

    def _answer(self, response: HttpResponse, form: type[T]) -> tuple[T, Callable[[Any], Any]]:
        """Return the answer of a gateway, and the function that reads its events."""
        if response.status != 200:
            raise error_of(response)
        try:
            if is_msgpack(response):
                typed = msgspec.msgpack.decode if self.events is None else self._decode
                return msgspec.msgpack.decode(response.content, type=form), typed
            return msgspec.json.decode(response.content, type=form), msgspec.json.decode
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise OperationalError(f"the response cannot be read: {error}") from error

    def _decode(self, event: msgspec.Raw) -> Any:
        assert self.events is not None, "the caller has looked"
        return self.events.decode(bytes(event))


class ReceivedAtoms(NamedTuple):
    """The atoms of an answer, the number to ask for next, and the number of atoms that the stream has."""

    atoms: list[Atom[Any]]
    next: int
    published: int


def followed(
    app: App | None, stream: Stream[Any] | str, where: Mapping[str, Any] | None = None
) -> FollowedStream:
    """Return the stream to follow, with the type of its events if the program knows it.

    Raises:
        RequestError: The application has no such stream, or no filter can have such a name or value.
        UserError: The stream belongs to no application.
    """
    only = follow_texts(where or {})
    if isinstance(stream, Stream):
        return FollowedStream(stream.name, stream.events, only)
    return FollowedStream(stream, None if app is None else app.stream(stream).events, only)


class _Page(msgspec.Struct):
    position: str
    epoch: int
    complete: bool
    changes: list[msgspec.Raw]


class _Atom(msgspec.Struct):
    atom: int
    events: list[msgspec.Raw]
    time: datetime
    epoch: int


class _Answer(msgspec.Struct):
    next: int
    published: int
    atoms: list[_Atom]
