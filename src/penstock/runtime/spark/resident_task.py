"""The resident task: a task of Spark that stays, and runs the command of one epoch after the other.

A job of Spark takes longer than a small epoch. So the commands of epochs take this path, each in a resident task of its own:

1. `ResidentTask` submits a job of one task in a thread of its own. Its command, `Reside`, has the path of a socket.
2. The task loads the application, connects to the socket, and waits (`serve`).
3. The driver sends the command of an epoch (`ResidentTask.run`).
4. The task runs the command with the function that runs the commands of all tasks, and sends the result.
5. The driver commits the parts that the result names. Then the task applies the epoch to the stores.

When the task fails or its process ends, the connection ends, and the same command runs as an ordinary job. Meanwhile
Spark runs the task again, or the thread submits another job. Each job has its own socket, so no task of an earlier
job can answer; the parts that it writes are in no commit. A driver that ends closes its end, and the task ends.

A `Door` is where the task of each job connects. This module has the one of the driver's own host, a Unix socket; tasks on other
hosts connect to `reception`.
"""

import itertools
import logging
import math
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Final, Protocol

import msgspec

from penstock.base.cause import cause_text
from penstock.files.temporary_folder import temporary_folder
from penstock.model.request import Failure
from penstock.runtime.spark import messages
from penstock.runtime.spark.frames import Frames
from penstock.runtime.spark.messages import Reside, TaskCommand, TaskResult

_log = logging.getLogger(__name__)

_PATH_BYTES_MAX: Final = 100
"""The kernel's limit for the path of a socket is 108, with its end."""

_PAUSES_S: Final = (0.1, 5.0)
"""The first and the longest pause before a job that follows a job which ended early."""

TAKEN_S: Final = 30.0
"""A task takes a command at once, unless its process hangs: stopped, or in a destructor of user code."""

_TAKEN: Final = b"taken"
_FIRST_BYTES_MAX: Final = 1 << 20
_TIME: Final = struct.Struct("ll")  # seconds, microseconds
_PEER: Final = struct.Struct("3i")  # process, user, group
_EARLY_S: Final = 60.0
_JOIN_S: Final = 60.0
_LOST: Final = (OSError, EOFError, msgspec.MsgspecError)


class Door(Protocol):
    """Where the task of each job of one resident task connects.

    Attributes:
        name: Its name, which no other resident task has.
        taken_s: The time in which a task takes a command.
    """

    name: str
    taken_s: float

    def open(self, number: int) -> AbstractContextManager[Reside]:
        """Let the task of a job connect, until the block ends; give the command for the job.

        Args:
            number: The number of the job. No task of an earlier job can connect any more.
        """

    def shut(self) -> None:
        """Let no task connect until the next `open`."""

    def arrived(self) -> Frames | None:
        """Return a connection that has come since the last call; None if there is none. It does not wait."""

    def kill(self, task: Frames) -> None:
        """Kill the process at the other end of a connection; Spark runs its task again."""


class ResidentTask:
    """The driver's end: keeps one resident task running, and gives it commands.

    Args:
        submit: Runs the job of the task; it returns when the task has ended.
        on_deaths: Takes the notes of a worker that has died on another host.
        on_failure: Takes the failure of a command that was begun, whose result nobody waits for.
    """

    def __init__(
        self,
        submit: Callable[[Reside], object],
        door: Door,
        *,
        encode: Callable[[TaskCommand], bytes] = messages.encode,
        on_deaths: Callable[[dict[str, str]], object] = lambda _: None,
        on_failure: Callable[[Failure], object] = lambda _: None,
    ) -> None:
        self._encode = encode
        self._submit = submit
        self._door = door
        self._on_deaths = on_deaths
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._task: Frames | None = None
        self._owed = 0  # results of commands that `begin` has sent
        self._is_taken = (
            False  # whether the task has taken the first of them, as far as it is known
        )
        self._in_use = threading.Lock()
        self._stopping = threading.Event()
        thread = f"penstock-{door.name}"
        self._thread = threading.Thread(target=self._keep, name=thread, daemon=True)

    def start(self) -> None:
        """Start the thread that keeps the task running."""
        self._thread.start()

    def expect_end(self) -> None:
        """Submit no further job."""
        self._stopping.set()

    def stop(self) -> None:
        """End the task, and wait until its job has ended; no command may run."""
        self._stopping.set()
        self._door.shut()
        if (task := self._task) is not None:
            self._leave(task)
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    def run(self, command: TaskCommand) -> TaskResult | None:
        """Run a command in the task; from any thread.

        Returns:
            The result, or None without a task, while it runs another command, or if the task is lost before it has sent
            the result.
        """
        if not self._in_use.acquire(blocking=False):
            return None
        try:
            return self._run(command)
        finally:
            self._in_use.release()

    def _run(self, command: TaskCommand) -> TaskResult | None:
        task = self.connected()
        if task is None:
            return None
        try:
            task.send_bytes(self._encode(command))
            while self._owed:
                self._settle(task)
            result = self._result(task)
        except _LOST as error:
            _log.info("the resident task is lost", extra={"cause": cause_text(repr(error))})
            result = None
        if result is None or result.failure is not None:
            self._leave(task)
        if result is not None and result.died:
            self._on_deaths(result.deaths)
            return None
        return result

    @property
    def is_busy(self) -> bool:
        """Whether the task runs a command that was begun; for a caller that alone uses it."""
        task = self.connected()
        return task is not None and not self._is_settled(task)

    def begin(self, command: TaskCommand) -> None:
        """Let the task run a command before the next one, and do not wait for the result.

        While the task still runs a command that was begun, nothing happens: the next one does its work, too.
        """
        task = self.connected()
        if task is None:
            return
        # The results of a task that runs no other command would fill the socket.
        if self._owed and not self._is_settled(task):
            return
        try:
            task.send_bytes(self._encode(command))
            self._owed += 1
        except OSError:
            self._leave(task)

    def _is_settled(self, task: Frames) -> bool:
        """Take the results that are there, without a wait; say whether the task can take a command at once."""
        try:
            while self._owed and task.poll():
                if not self._is_taken:
                    self._is_taken = task.recv_bytes(_FIRST_BYTES_MAX) == _TAKEN
                    if self._is_taken:
                        continue
                    raise EOFError  # it has died
                self._settle(task)
        except _LOST:
            self._leave(task)
            return False
        return not self._owed

    def _settle(self, task: Frames) -> None:
        """Take the result of the first command that was begun; a task whose command has failed is not used again."""
        if (failure := self._result(task).failure) is not None:
            self._on_failure(failure)
            raise EOFError
        self._owed -= 1

    def _result(self, task: Frames) -> TaskResult:
        """Wait for the next result; a task that does not take its command in time is killed."""
        if not self._is_taken:
            if not task.poll(self._door.taken_s):
                self._door.kill(task)
                raise TimeoutError(f"the task takes no command within {self._door.taken_s:g} s")
            first = task.recv_bytes(_FIRST_BYTES_MAX)
            if first != _TAKEN:  # its warden says that the worker has died
                return messages.decode_result(first)
        self._is_taken = False
        task.poll(None)  # a transaction may take long
        # A message that has begun goes on, or is none: a handler may have written to the socket. A bound ends that wait.
        return messages.decode_result(task.recv_bytes())

    def connected(self) -> Frames | None:
        """Return the connection of the newest task."""
        with self._lock:
            while (arrived := self._door.arrived()) is not None:
                if (
                    self._task is not None
                ):  # Spark has run the task again, so the former process is lost
                    self._task.close()
                self._task, self._owed, self._is_taken = arrived, 0, False
            return self._task

    def _leave(self, task: Frames) -> None:
        """Close the connection of a task that is not used again."""
        with self._lock:
            if self._task is task:
                self._task = None
        task.close()

    def _keep(self) -> None:
        """Submit one job after the other, with growing pauses if they end early."""
        pause_s, pause_max_s = _PAUSES_S
        for number in itertools.count():
            began = time.monotonic()
            try:
                with self._door.open(number) as reside:
                    if not self._stopping.is_set():
                        self._submit(reside)
            except Exception as error:  # noqa: BLE001 -- epochs run as ordinary jobs meanwhile
                if not self._stopping.is_set():
                    extra = {"cause": cause_text(error)}
                    _log.info("the resident task has failed and is started again", extra=extra)
            # `run` may still read the last result of the task. A job that lasted was killed or stopped once. One that ends early will end early again.
            early = time.monotonic() - began < _EARLY_S
            pause_s = min(2 * pause_s, pause_max_s) if early else _PAUSES_S[0]
            if self._stopping.wait(pause_s):
                break


class UnixDoor:
    """A Unix socket for each job.

    Args:
        folder: The folder of the sockets.
    """

    def __init__(self, folder: Path, name: str = "resident", taken_s: float = TAKEN_S) -> None:
        self.name = name
        self.taken_s = taken_s
        self._patience = _TIME.pack(math.ceil(taken_s), 0)
        self._folder = folder
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None

    @contextmanager
    def open(self, number: int) -> Iterator[Reside]:
        """Listen on a socket of its own."""
        with _folder_of_sockets(self._folder) as folder:
            path = folder / f"{self.name}-{number}"
            listener = socket.socket(socket.AF_UNIX)
            listener.settimeout(0)
            listener.bind(str(path))
            path.chmod(0o600)
            listener.listen()
            with self._lock:
                self._listener = listener
            try:
                yield Reside(str(path))
            finally:
                self.shut()

    def shut(self) -> None:
        """Close the socket."""
        with self._lock:
            if self._listener is not None:
                with suppress(OSError):  # a path that stays does no harm
                    Path(self._listener.getsockname()).unlink()
                self._listener.close()
            self._listener = None

    def arrived(self) -> Frames | None:
        """Accept a connection."""
        with self._lock:
            if self._listener is None:
                return None
            try:
                channel, _ = self._listener.accept()
            except BlockingIOError:
                return None
        channel.settimeout(None)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, self._patience)
        return Connection(channel.detach())

    def kill(self, task: Frames) -> None:
        """Kill the process that the kernel names."""
        with socket.socket(fileno=os.dup(task.fileno())) as channel:
            peer = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        worker, _, _ = _PEER.unpack(peer)
        _log.error("a worker that makes no progress is killed", extra={"worker": worker})
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def serve(
    path: str, perform: Callable[[bytes], TaskResult], tidy_up: Callable[[], object]
) -> TaskResult:
    """Run commands as they come; the task's end.

    Args:
        perform: Runs an encoded command; it returns every error as a result.
        tidy_up: Is called after each result, while the driver works.

    Returns:
        When the driver has closed the connection, an empty result. After a command that failed, its result: then this
        process must not be used again.
    """
    with suppress(OSError, EOFError), Client(path, "AF_UNIX") as driver:
        return answer(driver, perform, tidy_up)
    return TaskResult()


def answer(
    driver: Frames, perform: Callable[[bytes], TaskResult], tidy_up: Callable[[], object]
) -> TaskResult:
    """Run the commands of a connection; see `serve`."""
    with suppress(OSError, EOFError):
        while True:
            command = driver.recv_bytes()
            driver.send_bytes(_TAKEN)
            result = perform(command)
            with suppress(OSError):
                driver.send_bytes(messages.encode(result))
            if result.failure is not None:
                return result
            tidy_up()
    return TaskResult()


@contextmanager
def _folder_of_sockets(folder: Path) -> Iterator[Path]:
    """Return a directory for sockets: the given one, or a temporary one if the given one takes no sockets."""
    if _takes_sockets(folder):
        yield folder
        return
    with temporary_folder("resident") as short:
        yield short


def _takes_sockets(folder: Path) -> bool:
    """Say whether the paths in a directory are short enough for sockets, and its file system can hold sockets."""
    longest = folder / f"resident{'9' * 10}"
    if len(os.fsencode(longest)) > _PATH_BYTES_MAX:
        return False
    with socket.socket(socket.AF_UNIX) as tried:
        try:
            tried.bind(str(longest))
        except OSError:  # a shared folder of a container often has no sockets
            return False
    longest.unlink(missing_ok=True)
    return True
