"""Presence: the processes of an application that run on a data directory.

Each process has a file, `run/<role>-<pid>.json`. That is a hint for people and
for other processes, never a lock: a second driver is refused by `driver.lock` and fenced by the
journal. The file of a killed process is recognised, because it has the start of the process
besides its id. `running_processes` adds the memory, the state and the children of each.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from penstock.errors import ConfigError
from penstock.files import durable, private
from penstock.files.layout import HOST_ID, RUN

ROLES: Final = (
    "supervisor",
    "driver",
    "standby",
    "view",
    "gateway",
    "generator",
    "applier",
    "effects",
    "builder",
)
SINGLE: Final = frozenset({"supervisor", "driver"})
"""Roles that only one process at a time may have."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TICKS: Final = 19
"""The place of the start among the fields of `/proc/PID/stat` that follow the name of the program."""
RUNNING: Final = "running"
_STATES: Final = {
    psutil.STATUS_STOPPED: "stopped",
    psutil.STATUS_TRACING_STOP: "held by a debugger",
    psutil.STATUS_ZOMBIE: "ended",
}


class Presence(msgspec.Struct, frozen=True):
    """One process of an application.

    Attributes:
        role: Its role, one of `ROLES`.
        app: The application as the command line named it.
        started_s: When the process started, seconds since the Unix epoch; for people.
        start: The start of the process, which no change of the clock moves; see `process_start`.
        details: Facts for other processes, such as the `url` of a gateway.
    """

    pid: int
    role: str
    app: str
    started_s: float
    start: str
    details: dict[str, str | int] = {}

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        try:
            ended = psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE
            return not ended and start_of(self.pid) == self.start
        except psutil.NoSuchProcess:
            return False


def find(data: Path, role: str) -> list[Presence]:
    """Return the processes of a role that run on a data directory now, the oldest first."""
    announced = (_read(path) for path in (data / RUN).glob(f"{role}-*.json"))
    alive = [process for process in announced if process is not None and process.alive]
    return sorted(alive, key=lambda process: (process.started_s, process.pid))


def refuse_second(data: Path, role: str) -> None:
    """Check that no other process has a role that only one process may have."""
    for other in find(data, role) if role in SINGLE else ():
        raise ConfigError(
            f"process {other.pid} runs {other.app} in {data} already (as its {role}); "
            "stop it, or give --data"
        )


def presence_of_this(role: str, app: str, details: dict[str, str | int]) -> Presence:
    """Return the presence of this process in a role.

    Args:
        app: The application as the command line named it.
        details: Facts for other processes.
    """
    pid = os.getpid()
    return Presence(pid, role, app, psutil.Process().create_time(), start_of(pid), details)


class Announcement:
    """The file by which this process announces its role."""

    def __init__(self, path: Path, mine: Presence) -> None:
        self._path = path
        self._mine = mine
        self._write()

    def tell(self, **details: str | int) -> None:
        """Add facts for other processes, or change them."""
        self._mine = msgspec.structs.replace(self._mine, details=self._mine.details | details)
        self._write()

    def _write(self) -> None:
        written = self._path.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(self._mine))
        written.replace(self._path)


@contextmanager
def present(data: Path, role: str, app: str, **details: str | int) -> Iterator[Announcement]:
    """Announce that this process has a role until the block ends; remove files of dead processes.

    Yields:
        The announcement, to which the process can add facts.
    """
    refuse_second(data, role)
    folder = data / RUN
    private.create(data)
    folder.mkdir(exist_ok=True)
    _remove_dead(folder)
    mine = presence_of_this(role, app, details)
    path = folder / f"{role}-{mine.pid}.json"
    announcement = Announcement(path, mine)
    try:
        yield announcement
    finally:
        path.unlink(missing_ok=True)


def _remove_dead(folder: Path) -> None:
    for path in folder.glob("*-*.json"):
        announced = _read(path)
        if announced is None or not announced.alive:
            path.unlink(missing_ok=True)


def _read(path: Path) -> Presence | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Presence)
    except (OSError, msgspec.DecodeError):
        return None


def host_id(root: Path) -> str:
    """Return the id of the folder of a host, drawn at its first use: processes that share the folder are of one host."""
    path = root / HOST_ID
    with contextlib.suppress(FileExistsError):
        durable.publish(path, secrets.token_hex(8).encode())
    return path.read_text()


def boot_id() -> str:
    """Return a text that changes when the machine restarts; empty if the system has no such text.

    It tells the crash of a process from the crash of the machine.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """Return a text that differs for each process that has, or had, this id."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        # No such process, or a system without /proc, where the start is stored as a time.
        return repr(psutil.Process(pid).create_time())
    return f"{boot_id()}:{fields[_TICKS]}"


class RunningProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process at one moment.

    Attributes:
        role: One of `ROLES`; the name of the program for a child.
        started_s: The time of its start, seconds since the Unix epoch.
        uptime_s: The seconds since its start.
        memory_bytes: Its resident memory and that of its children; shared pages count for each process.
        state: `running`, or the reason why it does not run.
        details: The facts that it has announced.
        children: All processes below it; empty for the supervisor, whose children have roles.
    """

    pid: int
    role: str
    started_s: float
    uptime_s: float
    memory_bytes: int
    state: str
    details: dict[str, str | int]
    children: tuple["RunningProcess", ...] = ()

    @property
    def own_bytes(self) -> int:
        """The resident memory without that of its children."""
        return self.memory_bytes - sum(child.memory_bytes for child in self.children)


def running_processes(data: Path) -> list[RunningProcess]:
    """Return the processes of the application in a data directory, in the order of their roles.

    A process that ends meanwhile is left out.
    """
    processes = []
    for role in ROLES:
        for announced in find(data, role):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(announced.pid)
                # The supervisor's children announce themselves, so they would be counted twice.
                below = [] if role == "supervisor" else process.children(recursive=True)
                processes.append(
                    _described(process, role, announced.details, tuple(_children(below)))
                )
    return processes


def _children(processes: list[psutil.Process]) -> Iterator[RunningProcess]:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            yield _described(process, process.name(), {}, ())


def _described(
    process: psutil.Process,
    role: str,
    details: dict[str, str | int],
    children: tuple[RunningProcess, ...],
) -> RunningProcess:
    started_s = process.create_time()
    return RunningProcess(
        pid=process.pid,
        role=role,
        started_s=started_s,
        uptime_s=max(0.0, time.time() - started_s),
        memory_bytes=process.memory_info().rss + sum(child.memory_bytes for child in children),
        state=_STATES.get(process.status(), RUNNING),
        details=details,
        children=children,
    )
