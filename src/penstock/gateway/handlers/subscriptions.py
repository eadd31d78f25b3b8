"""`GET /entities/{Entity}/{key}/changes`: the states of one entity, as server-sent events.

Promises that a subscriber sees the present state, and then the newest one after each change; states in between may be left
out, and `changes` of the class has each one. One task looks at the subscribed entities together after new epochs, at most `LOOKS`
times in a second. A look reads the rows of those entities that the epochs have changed, so it costs what has changed, and not what
is subscribed. It reads all rows where that takes less time (`state.newest`), and after a deployment, which may show an unchanged
row in another way. The right of a class is asked for each state that a subscriber gets, with the rights of its key or
token at that moment: what else the right may depend on, such as another entity or the time, begins no look.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Set
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Final, Protocol

from starlette.responses import Response

from penstock.base.http import EVENTS, HEARTBEAT_S
from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch
from penstock.errors import Overloaded, PenstockError, RequestError, TimedOut
from penstock.gateway.auth.authentication import Authenticator
from penstock.gateway.auth.principal import Principal
from penstock.gateway.connections import Connections
from penstock.gateway.handlers.entity_read import EntityReadHandler
from penstock.gateway.handlers.streams import (
    CHECK_S,
    HEARTBEAT,
    EventStream,
    refused_event,
)
from penstock.gateway.http_request import HttpRequest, parse_epoch
from penstock.gateway.reader_pool import EntityReader
from penstock.gateway.responses import json_of, reply_headers
from penstock.gateway.route import MIN_EPOCH_HEADER, SHOWN, TICKET, Answer, Parameter, Route
from penstock.journal.tail import AsyncJournalTail

_log = logging.getLogger(__name__)

LOOKS: Final = 20
_PAUSE_S: Final = 1 / LOOKS
_IDLE_S: Final = 1.0
"""The longest time between two looks: a deployment may change how a state is shown."""

_ASKING_MAX: Final = 16
"""The states that are read at a time, so that a change with many subscribers leaves readers for other requests."""

_SHARE: Final = 4
"""A principal has at most this part of `gateway.connections_max` as subscriptions; half of it is for all event streams."""


class Served(Protocol):
    """The version of the application that gets new requests; a `with` block keeps it open."""

    entity_reads: EntityReadHandler

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


class _Subscription:
    """One subscriber.

    Attributes:
        shown: The epoch of the newest state that it has.
        digest: That of the state's JSON, which may be personal and so is not kept.
    """

    __slots__ = ("digest", "shown", "wake")

    def __init__(self, shown: Epoch, digest: bytes) -> None:
        self.shown = shown
        self.digest = digest
        self.wake = asyncio.Event()


class _SubscribedEntity:
    """An entity with subscribers.

    Attributes:
        is_read: Whether a look has read its row.
        row: The row at the epoch of the last look, if `is_read`; None if the entity does not exist.
    """

    __slots__ = ("is_read", "row", "subscriptions")

    def __init__(self) -> None:
        self.subscriptions: dict[_Subscription, None] = {}
        self.is_read = False
        self.row: bytes | None = None


class SubscriptionHandler:
    """Serves the subscribers of entities, in all versions of the application. For one event loop.

    Args:
        version: Returns the present version.
        entities: Reads the rows.
        authenticator: Says whether the credential of a subscriber is still valid.
    """

    def __init__(
        self,
        version: Callable[[], Served],
        tail: AsyncJournalTail,
        entities: EntityReader,
        authenticator: Authenticator,
        connections: Connections,
    ) -> None:
        self._version = version
        self._tail = tail
        self._entities = entities
        self._authenticator = authenticator
        self._connections = connections
        self._subscribed: dict[EntityKey, _SubscribedEntity] = {}
        # A copy of its keys for the thread that reads, until one comes or goes; in their order, as they lie in memory.
        self._keys: Set[EntityKey] | None = None
        self._counts: Counter[str] = Counter()
        self._asking = asyncio.Semaphore(_ASKING_MAX)
        self._following: asyncio.Task[None] | None = None
        self._epoch = BEFORE_FIRST  # of the last look
        self._came: list[_Subscription] | None = None  # during the present look
        self._is_stopping = False

    @Route(
        "GET",
        "/entities/{entity}/{key}/changes",
        "subscriptions",
        parameters=(
            Parameter(
                "Last-Event-ID",
                "header",
                "The epoch of the last state that the subscriber has; this state is left out at the beginning.",
                {"type": "string", "pattern": r"^\d{1,18}$"},
            ),
            MIN_EPOCH_HEADER,
            TICKET,
        ),
        answers=(
            Answer("The states of the entity.", {EVENTS: {"schema": {"type": "string"}}}, SHOWN),
        ),
        errors=(429, 504),
    )
    async def subscribe(self, request: HttpRequest) -> Response:
        """Subscribe to an entity.

        Needs `Accept: text/event-stream`, and the response does not end. The data of each event is the entity as `GET` shows it, or
        null if it does not exist; the id is the epoch. The first event is the present state. States in between may be left out.
        """
        reads, path = self._version().entity_reads, request.path
        key = reads.stored_key(request.principal, path["entity"], path["key"])
        if EVENTS not in request.headers.get("accept", "") or request.verb != "GET":
            raise RequestError(
                f"the changes of one entity are an event stream: send GET with Accept: {EVENTS}; "
                "/entities/{class}/changes?from=N lists each change of a class"
            )
        last = request.headers.get("last-event-id")
        known = None if last is None else parse_epoch("Last-Event-ID", last)
        self._check_share(request.principal)
        self._connections.check_room()  # while there is still a status
        await reads.reached(request)
        epoch, data = await self._state(request, request.principal, None)
        first = b"" if epoch == known else _event(epoch, data)
        events = self._events(request, key, _Subscription(epoch, _digest(data)), first)
        return EventStream(events, reply_headers(epoch))

    def stop(self) -> None:
        """End all subscriptions; the subscribers go on elsewhere."""
        self._is_stopping = True
        self._wake_all()

    async def close(self) -> None:
        """End the shared reading."""
        self.stop()
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait({self._following})

    async def _events(
        self, request: HttpRequest, key: EntityKey, subscription: _Subscription, body: bytes
    ) -> AsyncIterator[bytes]:
        """Yield the event of each new state after one that is read already.

        Args:
            body: The event of that state; empty if the subscriber has it.
        """
        principal, checked_s = request.principal, time.monotonic()
        with self._connections.staying(), self._joined(principal, key, subscription):
            while not self._is_stopping:
                if body:
                    yield body
                body = HEARTBEAT
                try:
                    is_woken = await _woken(subscription.wake)
                    if (now_s := time.monotonic()) >= checked_s + CHECK_S:
                        await self._authenticator.awake()
                        principal = self._authenticator.follower(request.scope)
                        checked_s = now_s
                    if is_woken:
                        epoch, data = await self._state(request, principal, self._read_of(key))
                        body, digest = b"", _digest(data)
                        # The subscriber may have read a newer state for itself than the last look.
                        if epoch >= subscription.shown and digest != subscription.digest:
                            subscription.shown, subscription.digest = epoch, digest
                            body = _event(epoch, data)
                except PenstockError as error:  # the status is sent; a new request gets the error
                    yield refused_event(error)
                    return

    async def _state(
        self, request: HttpRequest, principal: Principal, read: tuple[Epoch, bytes | None] | None
    ) -> tuple[Epoch, bytes]:
        """Return an epoch and the entity at it as JSON, in the version of the application that is served now."""
        version = self._version()
        async with self._asking:
            with version:
                epoch, values = await version.entity_reads.state(
                    principal, request.path["entity"], request.path["key"], read
                )
        return epoch, json_of(values)

    def _check_share(self, principal: Principal) -> None:
        """Check that a principal may have a further subscription; without keys, all callers are the same principal."""
        most = max(1, self._connections.most // _SHARE)
        if principal.namespace and self._counts[principal.namespace] >= most:
            raise Overloaded(
                f"{principal.name} has {most} subscriptions at this gateway already (a quarter of gateway.connections_max)"
            )

    @contextmanager
    def _joined(
        self, principal: Principal, key: EntityKey, subscription: _Subscription
    ) -> Iterator[None]:
        """Let a subscriber share the looks at an entity."""
        self._check_share(principal)
        if (entity := self._subscribed.get(key)) is None:
            entity = self._subscribed[key] = _SubscribedEntity()
            self._keys = None
        entity.subscriptions[subscription] = None
        self._counts[principal.namespace] += 1
        if self._epoch > subscription.shown:  # a look went on after the subscriber's own reading
            subscription.wake.set()
        if self._came is not None:
            self._came.append(subscription)
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())
        try:
            yield
        finally:
            del entity.subscriptions[subscription]
            if not entity.subscriptions:
                del self._subscribed[key]
                self._keys = None
            self._counts[principal.namespace] -= 1
            if not self._counts[principal.namespace]:
                del self._counts[principal.namespace]

    def _read_of(self, key: EntityKey) -> tuple[Epoch, bytes | None] | None:
        """Return the epoch of the last look, and the row of an entity at it; None if no look has read the row."""
        entity = self._subscribed[key]
        return (self._epoch, entity.row) if entity.is_read else None

    def _wake_all(self) -> None:
        for entity in self._subscribed.values():
            for each in entity.subscriptions:
                each.wake.set()

    async def _follow(self) -> None:
        """Look after new epochs and deployments, until there are no subscribers."""
        served, said = self._version(), ""
        while self._subscribed:
            try:
                with suppress(TimedOut):
                    await self._tail.until(Epoch(self._epoch + 1), _IDLE_S)
                if self._version() is not served:
                    chosen = self._version()
                    await self._look(None)
                    served = chosen
                    self._wake_all()
                elif self._tail.epoch > self._epoch:
                    await self._look(self._epoch)
                said = ""
            except Exception as error:  # noqa: BLE001 -- the next look may work; the subscribers keep their states
                if said != repr(error):  # each further try fails in the same way
                    said = repr(error)
                    _log.warning("subscribed entities cannot be read", exc_info=error)
                await asyncio.sleep(_IDLE_S)
            await asyncio.sleep(_PAUSE_S)

    async def _look(self, after: Epoch | None) -> None:
        """Read the subscribed rows that may have changed after an epoch, and wake the subscribers of those that have.

        Args:
            after: The epoch of the last look; None for all rows.
        """
        came: list[_Subscription] = []
        self._came = came
        if self._keys is None:
            self._keys = dict.fromkeys(self._subscribed).keys()
        try:
            epoch, rows = await self._entities.read_changed(self._keys, after)
        finally:
            self._came = None
        before = self._epoch
        for key, row in rows.items():
            if (entity := self._subscribed.get(key)) is None:
                continue
            has_changed = not entity.is_read or entity.row != row
            entity.is_read, entity.row = True, row
            for each in entity.subscriptions:
                # The row of the last look says nothing about a state that a subscriber has read for itself since then.
                if has_changed or each.shown > before:
                    each.wake.set()
        self._epoch = epoch
        for each in came:  # their entities may be new to this look: they read for themselves
            each.wake.set()


async def _woken(wake: asyncio.Event) -> bool:
    """Wait for a change; return False if it is time for a heartbeat."""
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            await wake.wait()
    except TimeoutError:
        return False
    wake.clear()
    return True


def _event(epoch: Epoch, data: bytes) -> bytes:
    """Return the event of a state; before the first epoch it has no id."""
    return (b"" if epoch == BEFORE_FIRST else b"id: %d\n" % epoch) + b"data: %b\n\n" % data


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
