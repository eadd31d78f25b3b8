"""The connections of one gateway: bounded in number, and useless ones end before others have no place.

The HTTP server accepts at most `most` connections; further ones wait in the system's queue. An idle connection costs its
owner nothing, so a few callers could hold all of them. So when few places are left, the gateway ends connections without a
running request, the longest useless ones first: idle connections, and those that send a head or a body slowly. Connections that stay open by their nature (pipelines, event streams, requests that wait) have at most half of the places.

The server does not tell which connections it has. The system does: this module finds the sockets of its port among the
open files of the process (Linux), and shuts a socket down, which the server takes for the end of its client.
"""

import asyncio
import logging
import math
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from penstock.errors import Overloaded
from penstock.process.open_files import open_files

_log = logging.getLogger(__name__)

Address = tuple[str, str]
"""The host and the port of a client; the server's ASGI scope has both as texts."""

_CROWDED: Final = 0.8
_AFTER: Final = 0.6
_LOOK_S: Final = 0.5
_LOOK_CROWDED_S: Final = 0.05
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
_PAUSE_S: Final = 5.0
"""A connection that has brought a request is taken for useless so much later than one that has brought none."""

_FILES: Final = Path("/proc/self/fd")
_INFO_BYTES: Final = 56
_SILENT_AT: Final = 52
"""The place of `tcpi_last_data_recv` in `struct tcp_info` of Linux: milliseconds since the last byte came."""


class _Place(NamedTuple):
    """A connection that may end, and how long it has been useless."""

    useless_s: float
    descriptor: int
    client: Address


class ComingBodies:
    """The clients whose bodies have not come wholly. For one event loop.

    All of them share one timer: `asyncio.timeout` for each takes 5.0 µs of a request, and this 1.4 µs.
    """

    def __init__(self) -> None:
        self._bodies: dict[Address, _Body] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ends_s = math.inf  # when the timer ends

    def __contains__(self, client: object) -> bool:
        return client in self._bodies

    def within(self, client: Address, limit_s: float) -> "_Body":
        """Return a context in which the running task receives the body of a client; after the limit it raises `TimeoutError`."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "only a task can be interrupted"
        end_s = loop.time() + limit_s
        body = self._bodies[client] = _Body(self._bodies, client, task, end_s)
        if end_s < self._ends_s:
            if self._timer is not None:
                self._timer.cancel()
            self._ends_s, self._timer = end_s, loop.call_at(end_s, self._end_late)
        return body

    def _end_late(self) -> None:
        """Interrupt the tasks whose time is up, and look again when the next one's is."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        waiting = (body for body in self._bodies.values() if not body.is_late)
        coming = sorted(waiting, key=attrgetter("end_s"))
        for body in coming:
            if body.end_s <= now_s:
                body.interrupt()
        self._ends_s = next((body.end_s for body in coming if not body.is_late), math.inf)
        is_needed = self._ends_s < math.inf
        self._timer = loop.call_at(self._ends_s, self._end_late) if is_needed else None


class _Body:
    """A body that a task receives, as a context; it does what `asyncio.timeout` does.

    Attributes:
        end_s: When its time is up, by the clock of the event loop.
        is_late: Whether its time was up.
    """

    __slots__ = ("_bodies", "_cancelling", "_client", "_task", "end_s", "is_late")

    def __init__(
        self,
        bodies: dict[Address, "_Body"],
        client: Address,
        task: asyncio.Task[Any],
        end_s: float,
    ) -> None:
        self._bodies = bodies
        self._client = client
        self._task, self._cancelling = task, task.cancelling()
        self.end_s = end_s
        self.is_late = False

    def __enter__(self) -> None:
        """Receive the body."""

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        if self._bodies.get(self._client) is self:
            del self._bodies[self._client]
        # If another one has cancelled the task, too, it ends as cancelled.
        if (
            self.is_late
            and self._task.uncancel() <= self._cancelling
            and error_type is asyncio.CancelledError
        ):
            raise TimeoutError

    def interrupt(self) -> None:
        """Cancel what the task waits for, because the time is up."""
        self.is_late = True
        self._task.cancel()


class Connections:
    """Counts the connections of one gateway. For one event loop.

    Attributes:
        busy: The clients whose requests run.
        receiving: Those of them whose bodies have not come wholly.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.busy: set[Address] = set()
        self.receiving = ComingBodies()
        self._asked: set[Address] = set()
        self._seen_s: dict[Address, float] = {}
        self._staying = 0
        # Files that the process had before are no connections.
        self._others = open_files()

    def begin(self, client: Address) -> None:
        """Note that a request of a client runs."""
        self.busy.add(client)
        if len(self._asked) >= 2 * self.most:  # most of them have gone
            self._asked.clear()
        self._asked.add(client)

    def end(self, client: Address) -> None:
        """Note that its request has ended."""
        self.busy.discard(client)

    @contextmanager
    def staying(self) -> Iterator[None]:
        """Count a connection that stays open by its nature."""
        self.check_room()
        self._staying += 1
        try:
            yield
        finally:
            self._staying -= 1

    def check_room(self) -> None:
        """Check that a further connection may stay; raises as `staying`."""
        # The other half stays for short requests, which would have no place otherwise.
        if self._staying >= self.most // 2:
            raise Overloaded(
                f"{self._staying} connections of this gateway stay open already: pipelines, event streams and requests "
                "that wait (half of gateway.connections_max)"
            )

    async def keep_room(self, port: int) -> None:
        """End useless connections whenever few places are left, on Linux."""
        while _FILES.is_dir():
            is_crowded = open_files() - self._others >= _CROWDED * self.most
            try:
                if is_crowded:
                    self.make_room(port)
            except Exception:  # noqa: BLE001 -- the next look may work; the log has the traceback
                _log.exception("no room was made for new connections")
            await asyncio.sleep(_LOOK_CROWDED_S if is_crowded else _LOOK_S)

    def make_room(self, port: int) -> int:
        """End useless connections if few places are left; return how many."""
        now_s, places = time.monotonic(), list(_places(port))
        self._seen_s = {place.client: self._seen_s.get(place.client, now_s) for place in places}
        self._asked.intersection_update(self._seen_s)
        if len(places) < _CROWDED * self.most:
            return 0
        useless = sorted(
            filter(None, (self._useless(place, now_s) for place in places)), reverse=True
        )
        # More than one, so that the next callers do not wait for a look of their own.
        surplus = useless[: max(0, len(places) - int(_AFTER * self.most))]
        for place in surplus:
            _shut_down(place)
        return len(surplus)

    def _useless(self, place: _Place, now_s: float) -> _Place | None:
        """Return a place with the time for which its connection has been useless; None if its request runs."""
        is_slow = place.client in self.receiving or place.client not in self._asked
        if place.client in self.busy and not is_slow:
            return None
        if not is_slow:  # it has brought a request, and will probably bring another one
            return place._replace(useless_s=place.useless_s - _PAUSE_S)
        # A client that sends a byte now and then is not silent, and its request has not come either.
        return place._replace(useless_s=max(now_s - self._seen_s[place.client], place.useless_s))


def _places(port: int) -> Iterator[_Place]:
    """Yield the open connections of a port, with the time for which they were silent."""
    for name in os.listdir(_FILES):  # noqa: PTH208 -- thousands of names need no paths
        with suppress(OSError, struct.error):
            # The server does not tell which connections it has; the system does.
            lent = socket.socket(fileno=int(name))
            place = None
            try:
                if lent.family in _FAMILIES and lent.getsockname()[1] == port:
                    client = _client_of(lent)
                    info = lent.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
                    (silent_ms,) = struct.unpack_from("I", info, _SILENT_AT)
                    place = _Place(silent_ms / 1_000, int(name), client)
            finally:
                lent.detach()  # it is the server's
            if place is not None:
                yield place


def _client_of(connection: socket.socket) -> Address:
    """Return the client; raises `OSError` for a socket that listens."""
    host, port, *_ = connection.getpeername()
    return host, str(port)


def _shut_down(place: _Place) -> None:
    """Shut a connection down, unless it has ended: then the server may have another file with this descriptor."""
    with suppress(OSError):
        lent = socket.socket(fileno=place.descriptor)
        try:
            if lent.family in _FAMILIES and _client_of(lent) == place.client:
                lent.shutdown(socket.SHUT_RDWR)
        finally:
            lent.detach()
