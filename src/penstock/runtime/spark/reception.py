"""The reception: where the resident tasks of other hosts connect to the driver, over TLS.

One port of the driver takes the tasks of all hosts. A task that connects has shown the certificate of the run, and says who it
is (`Hello`): the job that it serves, its host, its process, and its versions. A task of an earlier job is sent away, so that it
cannot answer. A host with another minor version of Python, or another Penstock, is refused: the same handler could have another
outcome there.
"""

import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Final

from penstock.base.cause import cause_text
from penstock.runtime.spark import messages
from penstock.runtime.spark.frames import Frames, TlsFrames, context_of, watch
from penstock.runtime.spark.messages import Hello, Reside, Seat
from penstock.runtime.spark.resident_task import TAKEN_S

_log = logging.getLogger(__name__)

_WELCOME_S: Final = 5.0
"""A task must have said who it is within this time."""

_AT_ONCE: Final = 64
"""The most connections that have not said who they are."""

_HELLO_BYTES_MAX: Final = 1 << 20


def own_python() -> str:
    """Return the minor version of this Python."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@cache
def own_penstock() -> str:
    """Return the version of the installed Penstock."""
    return version("penstock")


def refusal_of(hello: Hello) -> str:
    """Return why a host cannot run tasks, with the remedy; empty if it can."""
    if hello.python != own_python():
        return (
            f"a host runs Python {hello.python} and the driver Python {own_python()}: install the same minor version "
            "on all hosts, or name it with host_python"
        )
    if hello.penstock != own_penstock():
        return (
            f"a host runs Penstock {hello.penstock} and the driver Penstock {own_penstock()}: install the same version "
            "on all hosts"
        )
    return ""


class Reception:
    """Listens, and leads each task to its door.

    Attributes:
        address: The address and the port.
        refusal: Why a host was refused last; empty if none was.
        changed: Is notified when a task has come, or a host was refused.
    """

    def __init__(
        self,
        host: str,
        credentials: bytes,
        on_deaths: Callable[[dict[str, str]], object],
        on_task: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Listen on a free port.

        Args:
            host: The address of this host that the others reach.
            on_deaths: Takes the notes of workers that had died on a host before.
            on_task: Takes the name of the door of each task that has come.

        Raises:
            OSError: The host has no such address.
        """
        self._listener = socket.create_server((host, 0))
        self._context = context_of(credentials, is_driver=True)
        self._on_deaths = on_deaths
        self._on_task = on_task
        self._doors: dict[str, RemoteDoor] = {}
        self._room = threading.BoundedSemaphore(_AT_ONCE)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.refusal = ""
        self.changed = threading.Condition()
        threading.Thread(target=self._listen, name="penstock-reception", daemon=True).start()

    def door(self, name: str, seat: Seat) -> "RemoteDoor":
        """Return the door of a resident task, whose jobs have this seat."""
        return self._doors.setdefault(name, RemoteDoor(name, seat))

    def refuse(self, why: str) -> None:
        """Note that a host cannot run tasks."""
        if why != self.refusal:
            _log.error("a host of the cluster is refused", extra={"why": why})
        with self.changed:
            self.refusal = why
            self.changed.notify_all()

    def close(self) -> None:
        """End; the connections of tasks are their own."""
        with suppress(OSError):  # else the thread would wait for one more connection
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                channel, _ = self._listener.accept()
            except OSError:  # closed
                return
            if not self._room.acquire(blocking=False):
                channel.close()
                continue
            threading.Thread(
                target=self._welcome, args=(channel,), name="penstock-welcome", daemon=True
            ).start()

    def _welcome(self, channel: socket.socket) -> None:
        """Learn who has connected; a connection that is none of a task of this run ends."""
        connection: socket.socket | TlsFrames = channel
        is_task = False
        try:
            channel.settimeout(_WELCOME_S)
            watch(channel)
            connection = TlsFrames(self._context.wrap_socket(channel, server_side=True))
            if connection.poll(_WELCOME_S):
                hello = messages.decode_hello(connection.recv_bytes(_HELLO_BYTES_MAX))
                is_task = self._lead(connection, hello)
        except Exception as error:  # noqa: BLE001 -- anybody may send anything to an open port
            _log.info("a connection is no task", extra={"cause": cause_text(error)})
        finally:
            self._room.release()
            if not is_task:
                connection.close()

    def _lead(self, frames: TlsFrames, hello: Hello) -> bool:
        """Lead a task to its door; say whether it has one."""
        if why := refusal_of(hello):
            self.refuse(why)
            return False
        name, _, number = hello.job.rpartition("-")
        door = self._doors.get(name)
        if door is None or not door.take(int(number), frames, hello):
            return False
        if hello.deaths:
            self._on_deaths(hello.deaths)
        facts = {"address": frames.peer, "host": hello.host, "worker": hello.pid}
        _log.info("a task has joined", extra=facts)
        self._on_task(name)
        with self.changed:
            self.refusal = ""
            self.changed.notify_all()
        return True


class RemoteDoor:
    """Takes the task of each job of one resident task, from whichever host it comes.

    Attributes:
        hello: The greeting of the newest task; None before the first.
        peer: The address of its host.
    """

    def __init__(self, name: str, seat: Seat, taken_s: float = TAKEN_S) -> None:
        """Accept no task yet."""
        self.name = name
        self.taken_s = taken_s
        self.hello: Hello | None = None
        self.peer = ""
        self._seat = seat
        self._lock = threading.Lock()
        self._number: int | None = None
        self._arrived: TlsFrames | None = None

    @contextmanager
    def open(self, number: int) -> Iterator[Reside]:
        """Let the task of a job in."""
        with self._lock:
            self._number = number
        try:
            yield Reside(f"{self.name}-{number}", self._seat)
        finally:
            self.shut()

    def shut(self) -> None:
        """Accept no task."""
        with self._lock:
            self._number, arrived, self._arrived = None, self._arrived, None
        if arrived is not None:
            arrived.close()

    def take(self, number: int, frames: TlsFrames, hello: Hello) -> bool:
        """Take a task, unless it is of another job."""
        with self._lock:
            if number != self._number:
                return False
            if self._arrived is not None:
                self._arrived.close()
            self._arrived, self.hello, self.peer = frames, hello, frames.peer
        return True

    def arrived(self) -> Frames | None:
        """Return a task that has come."""
        with self._lock:
            arrived, self._arrived = self._arrived, None
        return arrived

    def kill(self, task: Frames) -> None:
        """Let the host of the task end it: its warden does so when the connection ends."""
        hello = self.hello
        facts = {} if hello is None else {"host": hello.host, "worker": hello.pid}
        _log.error("a worker that makes no progress is killed", extra=facts)
        with suppress(OSError):
            task.close()
