"""Atoms of streams at a client: the question to a gateway, and the reading of its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from penstock.base.http import JSON, MSGPACK
from penstock.base.ids import Epoch
from penstock.client.encoding import error_of, is_msgpack, path_of
from penstock.client.operation import LONG_POLL_S, HttpResponse, OutgoingRequest
from penstock.errors import OperationalError
from penstock.model.application import App
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
class FollowedStream:
    """A stream that a client follows.

    Attributes:
        name: Its name.
        events: The type of its events; None for plain JSON.
    """

    name: str
    events: EventType[Any] | None

    def request(self, start: Start, wait_s: float) -> OutgoingRequest:
        """Return the request for the atoms from a number on.

        Args:
            start: The first atom.
            wait_s: The seconds that the gateway may wait for an atom.
        """
        path = f"{path_of('streams', self.name)}?from={start}"
        if wait_s > 0:
            path += f"&wait={min(wait_s, LONG_POLL_S):.3f}"
        return OutgoingRequest("GET", path, {"Accept": JSON if self.events is None else MSGPACK})

    def atoms_of(self, response: HttpResponse) -> "ReceivedAtoms":
        """Return the atoms of a response.

        Raises:
            PenstockError: The response is an error.
            OperationalError: The response cannot be read.
            Unencodable: An event does not fit the type.
        """
        if response.status != 200:
            raise error_of(response)
        decode: Callable[[Any], Any]
        try:
            if is_msgpack(response):
                answer = msgspec.msgpack.decode(response.content, type=_Answer)
                decode = msgspec.msgpack.decode if self.events is None else self._decode
            else:
                answer = msgspec.json.decode(response.content, type=_Answer)
                decode = msgspec.json.decode
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise OperationalError(f"the response cannot be read: {error}") from error
        atoms = [
            Atom(atom.atom, [decode(event) for event in atom.events], atom.time, Epoch(atom.epoch))
            for atom in answer.atoms
        ]
        return ReceivedAtoms(atoms, answer.next)

    def _decode(self, event: msgspec.Raw) -> Any:
        assert self.events is not None, "the caller has looked"
        return self.events.decode(bytes(event))


class ReceivedAtoms(NamedTuple):
    """The atoms of an answer, and the number to ask for next."""

    atoms: list[Atom[Any]]
    next: int


def followed(app: App | None, stream: Stream[Any] | str) -> FollowedStream:
    """Return the stream to follow, with the type of its events if the program knows it.

    Raises:
        RequestError: The application has no such stream.
        UserError: The stream belongs to no application.
    """
    if isinstance(stream, Stream):
        return FollowedStream(stream.name, stream.events)
    return FollowedStream(stream, None if app is None else app.stream(stream).events)


class _Atom(msgspec.Struct):
    atom: int
    events: list[msgspec.Raw]
    time: datetime
    epoch: int


class _Answer(msgspec.Struct):
    next: int
    atoms: list[_Atom]
