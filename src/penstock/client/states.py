"""Subscriptions of a client to one entity, without I/O: the question to a gateway, and the reading of its event stream."""

from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from penstock.base.http import EVENTS, HEARTBEAT_S, JSON
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.client.encoding import error_of
from penstock.client.operation import HttpResponse, OutgoingRequest
from penstock.errors import OperationalError

T = TypeVar("T")

SILENCE_S: Final = 2.5 * HEARTBEAT_S
"""A connection that brings nothing for this time is dead: a gateway sends at least a heartbeat."""

_EVENT_BYTES_MAX: Final = 64 << 20
_RETRY_MAX_S: Final = 60.0
_DIGITS_MAX: Final = 18


@dataclass(frozen=True, slots=True)
class EntityState(Generic[T]):
    """A state of an entity.

    Attributes:
        entity: A copy of the entity, or a dictionary of its attributes and key; None if it does not exist.
        epoch: The epoch at which it is so; -1 before the first epoch.
    """

    entity: T | None
    epoch: Epoch


AsyncStates = AsyncGenerator[EntityState[T], None]
States = Generator[EntityState[T], None, None]


@dataclass(slots=True)
class _Event:
    """The fields of a server-sent event."""

    kind: bytes = b"message"
    number: bytes = b""
    data: bytes | None = None


class Subscription(Generic[T]):
    """The place of a subscriber in the states of an entity; it outlives the connections.

    Attributes:
        epoch: The epoch of the newest state that was given; -1 before the first.
        pause_s: The pause before a further connection that the gateway asks for.
    """

    def __init__(self, path: str, read: Callable[[HttpResponse], T]) -> None:
        """Subscribe to an entity.

        Args:
            path: The path of its event stream.
            read: Returns the entity that a response holds.
        """
        self.epoch = BEFORE_FIRST
        self.pause_s = 0.0
        self._path = path
        self._read = read
        self._digest = b""
        self._headers: Mapping[str, str] = {}
        self._rest = bytearray()
        self._event = _Event()

    def request(self, headers: Mapping[str, str]) -> OutgoingRequest:
        """Return the request for the states that follow; `headers` are added to its own."""
        # A compressed stream may wait in a proxy until a block is full.
        own = {"Accept": EVENTS, "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        if self.epoch != BEFORE_FIRST:
            own["Last-Event-ID"] = str(self.epoch)
        return OutgoingRequest("GET", self._path, own | dict(headers))

    def begin(self, headers: Mapping[str, str]) -> None:
        """Begin to read a further connection, whose response has these headers."""
        self._headers = headers
        self._rest.clear()  # of an event that was cut off
        self._event = _Event()

    def states(self, chunk: bytes) -> Iterator[EntityState[T]]:
        """Yield the states that are complete with the next bytes of the connection.

        Raises:
            PenstockError: The gateway ends the subscription with this error.
            OperationalError: The bytes cannot be read.
            Unencodable: The entity differs from its class.
        """
        for line in self._lines(chunk):
            if line:
                self._take(line)
                continue
            event, self._event = self._event, _Event()
            if event.data is not None and (state := self._state_of(event)) is not None:
                yield state

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            self._rest += line
            taken = bytes(self._rest)
            self._rest.clear()
            yield taken.removesuffix(b"\r")
        self._rest += rest
        if len(self._rest) + len(self._event.data or b"") > _EVENT_BYTES_MAX:
            raise OperationalError(
                f"an event of {self._path} has more than {_EVENT_BYTES_MAX >> 20} MB"
            )

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event.kind = value
        elif name == b"id":
            self._event.number = value
        elif name == b"data":
            before = self._event.data
            self._event.data = value if before is None else before + b"\n" + value
        elif name == b"retry":
            self.pause_s = min(_number(value) / 1_000, _RETRY_MAX_S)

    def _state_of(self, event: _Event) -> EntityState[T] | None:
        """Return the state of an event; None for the state that was given last, which follows a cut."""
        data = event.data or b""
        if event.kind == b"refused":
            error = error_of(HttpResponse(400, self._headers, data))
            if isinstance(error, OperationalError):
                return (
                    None  # the response ends, and the next request tries again, or gets this error
                )
            raise error
        if event.kind != b"message":
            return None  # a later gateway may send further kinds
        epoch = Epoch(_number(event.number)) if event.number else BEFORE_FIRST
        # The data may be personal, and a subscription may last long: it keeps a digest.
        digest = blake2b(data, digest_size=16).digest()
        is_known = digest == self._digest
        entity = None
        if data != b"null" and not is_known:
            entity = self._read(HttpResponse(200, {"content-type": JSON}, data))
        self.epoch, self._digest = epoch, digest
        return None if is_known else EntityState(entity, epoch)


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _DIGITS_MAX:
        raise OperationalError(f"the event stream cannot be read: {text[:40]!r} is not a number")
    return int(text)
