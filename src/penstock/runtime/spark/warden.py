"""The warden: the process of a resident task on another host, which holds the connection and watches the worker.

On the driver's host the driver itself watches its workers and kills them. On another host this is the work of a process of that
host:

1. Spark runs the task in the warden. It connects to the driver (`reception`), forks the worker, and says who both are.
2. It passes commands to the worker and results to the driver. The worker answers as a resident task does everywhere.
3. It reads the notes of the worker, as the driver's watchdog does, and ends a worker whose handler cannot be interrupted.
4. If the worker dies, its notes say during which transaction. The warden tells the driver, and ends.
5. Where each host holds a part of the state, another process that it has forked gives rows to the others (`holders`).
6. If the connection ends, because the driver does, the host is cut off, or a worker took no command, it ends the worker.

A warden that dies leaves its notes on the host. The next one of the run takes them to the driver.
"""

import os
import select
import shutil
import signal
import socket
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from penstock.files import private
from penstock.files.roots import use_store
from penstock.model.request import Failure
from penstock.process.presence import host_id, start_of
from penstock.process.process_limits import end_with_parent
from penstock.runtime.spark import messages
from penstock.runtime.spark.frames import TlsFrames, connect
from penstock.runtime.spark.holders import start_answering, stop_answering
from penstock.runtime.spark.messages import Hello, Seat, TaskResult
from penstock.runtime.spark.quarantine import left_deaths, put_deaths
from penstock.runtime.spark.reception import own_penstock, own_python
from penstock.runtime.spark.scratch import new_folder_of_run, take_left
from penstock.runtime.spark.watchdog import LOOK_S, Watchdog

_CONNECT_S: Final = 10.0
_END_S: Final = 1.0
"""The time in which a worker ends that has nothing more to do."""

_LOST: Final = (OSError, EOFError)
_BYTES_MAX: Final = 1 << 30
_PATIENCE: Final = struct.pack("ll", 30, 0)
"""A worker that neither takes a command nor goes on with a message for 30 s is lost: its handler may have closed its files."""


class _Order(msgspec.Struct, array_like=True):
    """A `TaskMessage` whose command stays as it is."""

    settings: msgspec.Raw
    command: msgspec.Raw
    deaths: dict[str, str] = {}


_decode_order: Final = msgspec.msgpack.Decoder(_Order).decode


def attend(job: str, seat: Seat, work: Callable[[Connection, Path], object]) -> TaskResult:
    """Hold the connection to the driver, and watch a worker, until one of them ends.

    Args:
        job: The name of the job, as `Reside.socket`.
        work: Is called in the worker with its connection and the directory for its notes; it answers until the end.

    Raises:
        ConfigError: The root of the host cannot be used.
        OSError: The driver does not answer.
    """
    end_with_parent(os.getppid())  # without an executor Spark could not end this process
    root = Path(seat.host_data)
    private.create(root)
    if seat.store:
        use_store(root, seat.store)
    with (
        _folder_of_notes(root, seat.run) as notes,
        _answering(seat, root) as port,
        closing(connect(seat.address, seat.credentials, _CONNECT_S)) as driver,
    ):
        ours, theirs = Pipe()
        pid = _forked(driver, ours, theirs, lambda: work(theirs, notes))
        theirs.close()
        warden = _Warden(driver, ours, pid, notes, seat.stuck_s)
        try:
            deaths = _deaths_of_others(root, notes, seat.run)
            python, penstock, host = own_python(), own_penstock(), host_id(root)
            hello = Hello(job, python, penstock, host, pid, start_of(pid), deaths, port)
            driver.send_bytes(messages.encode(hello))
            warden.watch()
        finally:
            warden.end_worker()
    return TaskResult()


@contextmanager
def _folder_of_notes(root: Path, run: str) -> Iterator[Path]:
    """Make a folder for notes; it stays if this process is killed."""
    notes = new_folder_of_run(root, run)
    try:
        yield notes
    finally:
        shutil.rmtree(notes, ignore_errors=True)


@contextmanager
def _answering(seat: Seat, root: Path) -> Iterator[int]:
    """Let a process of this host give its rows to others, if it holds a part of the state; yield its port, or 0."""
    if not seat.answers:
        yield 0
        return
    pid, port = start_answering(seat.credentials, Path(seat.driver_data), root, _leave_sockets)
    try:
        yield port
    finally:
        stop_answering(pid)


def _forked(
    driver: TlsFrames, ours: Connection, theirs: Connection, work: Callable[[], object]
) -> int:
    """Fork the worker, and return its id."""
    warden = os.getpid()
    if (pid := os.fork()) != 0:
        return pid
    try:
        end_with_parent(warden)
        driver.close()
        ours.close()
        _leave_sockets(but=theirs.fileno())
        work()
    finally:
        os._exit(os.EX_OK)


def _leave_sockets(but: int) -> None:
    """Take the other sockets of the warden, with which it speaks to Spark, out of the reach of handlers."""
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # the one of the listing
            if (number := int(path.name)) != but and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.dup2(nothing, number, inheritable=False)  # it stays taken
    os.close(nothing)


def _deaths_of_others(root: Path, own: Path, run: str) -> dict[str, str]:
    """Return what wardens of this run have left that died together with their workers."""
    deaths: dict[str, str] = {}
    for left in take_left(root, own):
        if run in left.name:
            for name, text in left_deaths(left, {}).items():
                deaths[name] = deaths.get(name, "") + text
    return deaths


class _Warden:
    def __init__(
        self, driver: TlsFrames, worker: Connection, pid: int, notes: Path, stuck_s: float
    ) -> None:
        self._driver = driver
        self._worker = worker
        self._pid = pid
        self._notes = notes
        self._watchdog = Watchdog(notes, stuck_s)
        self._known: dict[str, str] = {}
        with socket.socket(fileno=os.dup(worker.fileno())) as channel:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                channel.setsockopt(socket.SOL_SOCKET, option, _PATIENCE)

    def watch(self) -> None:
        """Pass messages on until the driver or the worker ends."""
        poller = select.poll()
        poller.register(self._driver, select.POLLIN)
        poller.register(self._worker, select.POLLIN)
        looked = time.monotonic()
        while True:
            poller.poll(LOOK_S * 1_000)
            if (now := time.monotonic()) - looked >= LOOK_S:
                looked = now
                self._watchdog.look(now)
            if self._worker.poll() and not self._pass_result():
                return
            if self._driver.poll() and not self._pass_command():
                return

    def _pass_command(self) -> bool:
        """Pass a command on; say whether to go on."""
        try:
            message = self._driver.recv_bytes()
        except _LOST:
            return False
        deaths = _decode_order(message).deaths
        if deaths or self._known:
            put_deaths(self._notes, deaths)
            self._known = deaths
        try:
            self._worker.send_bytes(message)
        except OSError:
            self._tell_death()
            return False
        return True

    def _pass_result(self) -> bool:
        """Pass a result on; say whether to go on."""
        try:
            message = self._worker.recv_bytes(_BYTES_MAX)
        except _LOST:
            self._tell_death()
            return False
        try:
            self._driver.send_bytes(message)
        except OSError:
            return False
        return True

    def _tell_death(self) -> None:
        """Tell the driver that the worker has died, and which transaction its notes accuse."""
        self.end_worker()
        failure = Failure("internal", "EpochFailed", "its worker process has died")
        deaths = left_deaths(self._notes, self._known)
        # The driver awaits first that the command is taken, unless it was; it reads no further than a failure.
        with suppress(OSError):
            self._driver.send_bytes(
                messages.encode(TaskResult(failure=failure, died=True, deaths=deaths))
            )

    def end_worker(self) -> None:
        """End the worker, which may do nothing any more."""
        self._worker.close()
        until = time.monotonic() + _END_S
        with suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)
                    break
                time.sleep(0.005)
