"""Reads at one epoch that stay open between requests, each for one caller, bounded in number and in time.

A session has an open read of each of its views: a transaction of a database, a commit of an index. It ends when the caller
ends it, when it has been idle for too long, at the end of its time, and with its gateway. A database must keep all rows that
an open read sees, so these bounds protect the stores.

The gateways of an application share a port, and the questions of a caller may reach any of them. The id of a session names
its gateway; each gateway with sessions listens on a socket in `run/`, through which the others pass questions on.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Gone, Overloaded, PenstockError, ViewUnavailable
from penstock.files.layout import RUN
from penstock.gateway.work_threads import WorkThreads
from penstock.model.reply import failure_of, raised_by
from penstock.model.request import Failure
from penstock.process.serving import socket_path
from penstock.retention.leases import lease
from penstock.views.alignment import Aligned
from penstock.views.reading import Reading

SESSIONS_MAX: Final = 20
"""The most sessions of a gateway; one caller may have half of them."""

IDLE_S: Final = 10.0
"""A session ends after this time without a question."""

TIME_S: Final = 60.0
"""A session ends after this time."""

_OTHERS: Final = "at-{}.sock"
_ANSWER_S: Final = 70.0
_ENDED: Final = (
    f"this read at one epoch has ended: after {IDLE_S:g} s without a question, {TIME_S:g} s in all, or with its gateway; "
    "begin another one with POST /at"
)

T = TypeVar("T")


class PointSession:
    """A read of some views at one epoch.

    Attributes:
        owner: The only principal that may use it.
        aligned: The open reads; one thread at a time may use them.
        until: When it ends at the latest, in seconds of `time.monotonic`.
    """

    def __init__(self, name: str, owner: str, aligned: Aligned, held: ExitStack) -> None:
        self.name = name
        self.owner = owner
        self.until = time.monotonic() + TIME_S
        self.aligned = aligned
        self._held = held
        self.turn = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None

    @property
    def epoch(self) -> Epoch:
        """The epoch of all answers."""
        return self.aligned.epoch

    @property
    def readings(self) -> Mapping[str, Reading]:
        """The open reads by view."""
        return self.aligned.readings

    def close(self) -> None:
        """End the reads, which are free."""
        with self._held:
            self.aligned.close()


class _PassedOn(msgspec.Struct, frozen=True, array_like=True):
    """The message of one gateway to another: a question of a session's owner, or, without a body, the session's end."""

    session: str
    owner: str
    body: bytes | None


class _Told(msgspec.Struct, frozen=True, array_like=True):
    """The answer of another gateway."""

    epoch: Epoch = BEFORE_FIRST
    content: bytes = b""
    failure: Failure | None = None


Answering = Callable[[PointSession, bytes], Awaitable[bytes]]
"""Answers the questions in the body of a request at the epoch of a session."""


class PointSessions:
    """The sessions of one gateway, and the way to those of others; for one event loop.

    Args:
        threads: Use the readings.
        count: Is told the number of open sessions.
    """

    def __init__(
        self,
        data: Path,
        threads: WorkThreads,
        answering: Answering,
        count: Callable[[int], None],
    ) -> None:
        self._data = data
        self._threads = threads
        self._answering = answering
        self._count = count
        self._gateway = secrets.token_hex(4)
        self._open: dict[str, PointSession] = {}
        self._beginning = asyncio.Lock()
        self._ending: set[asyncio.Task[None]] = set()
        self._others: asyncio.Server | None = None
        self._listening = ExitStack()

    def check_room(self, owner: str) -> None:
        """Check that a caller may begin a session.

        Raises:
            Overloaded: There are too many.
        """
        own = sum(1 for each in self._open.values() if each.owner == owner)
        if len(self._open) >= SESSIONS_MAX or own >= SESSIONS_MAX // 2:
            raise Overloaded(
                f"{len(self._open)} reads at one epoch are open at this gateway, {own} of them yours; end those that are "
                f"not needed (a gateway has {SESSIONS_MAX}, a caller half of them)"
            )

    async def begin(self, owner: str, aligned: Aligned) -> PointSession:
        """Keep readings open for their owner; they are closed if that fails.

        Raises:
            Overloaded: There are too many sessions.
        """
        held = ExitStack()
        # SQL as of the epoch reads the journal, which retention must not forget meanwhile.
        keeping = lease(self._data, "a read at one epoch", aligned.epoch)
        leasing: asyncio.Task[None] | None = None
        try:
            async with self._beginning:
                self.check_room(owner)
                await self._listen()
                leasing = asyncio.create_task(asyncio.to_thread(held.enter_context, keeping))
                await asyncio.shield(leasing)
                name = f"{self._gateway}-{secrets.token_urlsafe(16)}"
                session = self._open[name] = PointSession(name, owner, aligned, held)
        except BaseException:
            if (
                leasing is not None
            ):  # a thread that takes the lease goes on when the caller has gone
                await asyncio.wait({leasing})
            with held:
                aligned.close()
            raise
        self._count(len(self._open))
        self._wait(session)
        return session

    async def ask(self, name: str, owner: str, body: bytes) -> tuple[Epoch, bytes]:
        """Answer questions in a session, here or at the gateway that has it; return its epoch and the answer.

        Raises:
            Gone: The session has ended, or is another caller's.
        """
        session = self._open.get(name)
        if session is None:
            told = await self._passed_on(_PassedOn(name, owner, body))
            return told.epoch, told.content
        self._require_owner(session, owner)
        return session.epoch, await self._answering(session, body)

    async def end(self, name: str, owner: str) -> None:
        """End a session, unless it has ended already."""
        session = self._open.get(name)
        try:
            if session is None:
                await self._passed_on(_PassedOn(name, owner, None))
                return
            self._require_owner(session, owner)
        except Gone:
            return
        await self._end(session)

    async def use(self, session: PointSession, work: Callable[[], T]) -> T:
        """Do work with the readings of a session in a thread, when they are free.

        Raises:
            Gone: The session has ended.
        """
        await session.turn.acquire()
        if session.name not in self._open:
            session.turn.release()
            raise Gone(_ENDED)
        if session.timer is not None:
            session.timer.cancel()
        # The session stays in use until the thread has ended, also if the caller has gone.
        return await self._threads.run(work, partial(self._used, session))

    async def close(self) -> None:
        """End all sessions."""
        if self._others is not None:
            self._others.close()
        with self._listening:
            for session in list(self._open.values()):
                self.end_soon(session)
            if self._ending:
                await asyncio.wait(self._ending)

    def _used(self, session: PointSession) -> None:
        session.turn.release()
        if session.name in self._open:
            self._wait(session)

    def _wait(self, session: PointSession) -> None:
        """End a session when it has been idle for too long, or at the end of its time."""
        loop = asyncio.get_running_loop()
        left_s = min(IDLE_S, max(0.0, session.until - time.monotonic()))
        session.timer = loop.call_later(left_s, self.end_soon, session)

    def end_soon(self, session: PointSession) -> None:
        """Begin to end a session."""
        ending = asyncio.get_running_loop().create_task(self._end(session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(self, session: PointSession) -> None:
        if self._open.pop(session.name, None) is None:
            return
        self._count(len(self._open))
        if session.timer is not None:
            session.timer.cancel()
        async with session.turn:  # a question may be under way
            await asyncio.to_thread(session.close)

    @staticmethod
    def _require_owner(session: PointSession, owner: str) -> None:
        if session.owner != owner:
            raise Gone(_ENDED)

    async def _listen(self) -> None:
        """Listen for other gateways, from the first session on."""
        if self._others is not None:
            return
        path = self._path_of(self._gateway)
        address = self._listening.enter_context(socket_path(path, "at"))
        if address != path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(address)
            self._listening.callback(path.unlink, missing_ok=True)
        self._others = await asyncio.start_unix_server(self._serve_other, address)
        address.chmod(0o600)

    def _path_of(self, gateway: str) -> Path:
        return (self._data / RUN / _OTHERS.format(gateway)).absolute()

    async def _serve_other(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one message of another gateway."""
        try:
            asked = msgspec.msgpack.decode(await _read(reader), type=_PassedOn)
            try:
                if asked.session not in self._open:
                    raise Gone(_ENDED)
                if asked.body is None:
                    await self.end(asked.session, asked.owner)
                    told = _Told()
                else:
                    told = _Told(*await self.ask(asked.session, asked.owner, asked.body))
            except PenstockError as error:
                told = _Told(failure=failure_of(error))
            writer.write(msgspec.msgpack.encode(told))
            await writer.drain()
        except (OSError, TimeoutError, msgspec.MsgspecError):
            return  # the other gateway has ended
        finally:
            writer.close()

    async def _passed_on(self, asked: _PassedOn) -> _Told:
        """Return the answer of the gateway that has a session; raises the error of that gateway."""
        gateway = asked.session.partition("-")[0]
        path = self._path_of(gateway)
        if gateway == self._gateway or not gateway.isalnum():
            raise Gone(_ENDED)
        try:
            # The path may be a link to a socket with a shorter one.
            reader, writer = await asyncio.open_unix_connection(path.resolve())
        except OSError as error:
            if isinstance(
                error, ConnectionRefusedError
            ):  # it was killed, and its name never comes again
                path.unlink(missing_ok=True)
            raise Gone(_ENDED) from None
        try:
            writer.write(msgspec.msgpack.encode(asked))
            writer.write_eof()
            told = msgspec.msgpack.decode(await _read(reader), type=_Told)
        except (OSError, msgspec.MsgspecError) as error:
            raise ViewUnavailable("the gateway that holds this read has not answered") from error
        finally:
            writer.close()
        if told.failure is not None:
            raise raised_by(told.failure)
        return told


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes of the other side until it ends."""
    async with asyncio.timeout(_ANSWER_S):
        return await reader.read()
