"""The hosts of an application whose shared root is in an object store: each says every ten seconds how it stands.

A host is a folder with a supervisor (`penstock host`, `penstock run`), whose `HostReporter` replaces `hosts/ID` in the shared
root, and removes it at the stop. A reader believes no clock of a host: the store tells how old a name is. Like presence, a report is
a hint for people, and nothing is decided by it.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST
from penstock.errors import JournalUnavailable
from penstock.files.durable import storage
from penstock.files.heartbeat import Beat
from penstock.files.layout import HOSTS, LEASE
from penstock.files.roots import shared_root, store_of
from penstock.files.shared_root import SharedRoot
from penstock.process.lease import lease_of

SILENT_S: Final = 30.0
"""A host that has said nothing for so long has perhaps ended, or is cut off."""
_ID_SHOWN: Final = 4
_FRESH_S: Final = 5.0
"""How long a reader keeps what it has seen: each look is paid for."""
CLOCK_S: Final = 30.0
"""A clock that differs more from that of the store needs an operator. No outcome depends on it."""
_FREE_LEAST: Final = 0.05
"""The part of a disk that should be free."""


class HostReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says of itself.

    Attributes:
        name: The name of the machine.
        url: The URL of its gateways as it knows them.
        processes: How many processes of each role run.
        penstock: The version of Penstock.
        python: The minor version of Python.
        epoch: The newest committed epoch as this host sees it; -1 before the first.
        state_epoch: The epoch of its copy of the state; None if it has none.
        held: The partitions that its tasks hold, where hosts hold parts of the state (`copies`); else 0.
        partitions: The partitions of the whole state.
        view_epoch: The epoch of its SQL view; None if no view runs.
        log_lag: The messages of the topic that its copy of the log lacks; None without Kafka, or if no broker answers.
        disk_free: The free bytes of the disk with its folder.
        disk_bytes: The size of that disk.
        clock_s: How far its clock is ahead of that of the store, in seconds.
        puts_per_s: The writes and listings that its processes ask of the store.
        gets_per_s: The reads.
        cents_per_day: What a day costs like this, by the settings `prices`.
        trouble: What does not work; empty if all does.
    """

    name: str
    url: str = ""
    processes: dict[str, int] = {}
    penstock: str = ""
    python: str = ""
    epoch: int = BEFORE_FIRST
    state_epoch: int | None = None
    held: int = 0
    partitions: int = 0
    view_epoch: int | None = None
    log_lag: int | None = None
    disk_free: int = 0
    disk_bytes: int = 0
    clock_s: float = 0.0
    puts_per_s: float = 0.0
    gets_per_s: float = 0.0
    cents_per_day: float = 0.0
    trouble: str = ""

    @property
    def state_lag(self) -> int | None:
        """The committed epochs that its copy of the state lacks."""
        return None if self.state_epoch is None else max(0, self.epoch - self.state_epoch)

    @property
    def view_lag(self) -> int | None:
        """The committed epochs that its SQL view lacks."""
        return None if self.view_epoch is None else max(0, self.epoch - self.view_epoch)


class HostStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A host as another one sees it.

    Attributes:
        id: The id of its folder.
        report: What it has said last.
        age_s: The seconds since then, by the clock of the store.
        is_silent: Whether it has said nothing for so long that it has perhaps ended.
        has_lease: Whether its driver holds the lease.
        state_lag: As `HostReport.state_lag`.
        view_lag: As `HostReport.view_lag`.
        notes: What an operator should know of it.
    """

    id: str
    report: HostReport
    age_s: float
    is_silent: bool
    has_lease: bool
    state_lag: int | None
    view_lag: int | None
    notes: list[str] = []

    @property
    def state(self) -> str:
        """How it stands, in one word."""
        return "silent" if self.is_silent else "in trouble" if self.report.trouble else "runs"


class HostList(msgspec.Struct, frozen=True):
    """The hosts of an application, as the console shows them.

    Attributes:
        text: Why they cannot be seen; empty if they can.
    """

    hosts: list[HostStanding] = []
    text: str = ""


def _notes_of(host: HostStanding) -> Iterator[str]:
    """Yield what an operator should know of a host, in sentences without their subject."""
    report = host.report
    if host.is_silent:
        yield f"has said nothing for {host.age_s:,.0f} s: it has ended without a word, or is cut off"
    if report.trouble:
        yield report.trouble
    if abs(report.clock_s) >= CLOCK_S:
        way = "ahead of" if report.clock_s > 0 else "behind"
        yield f"its clock is {abs(report.clock_s):,.0f} s {way} that of the object store; let a time service set it"
    if report.disk_bytes and report.disk_free < report.disk_bytes * _FREE_LEAST:
        yield f"its disk is almost full: {report.disk_free / (1 << 20):,.0f} MB are free"


def host_standings(data: Path) -> list[HostStanding]:
    """Return the hosts of an application, by their names; none if the shared root is a folder.

    Raises:
        JournalUnavailable: The object store does not answer.
    """
    if not store_of(data):
        return []
    with storage("look at the hosts"):
        root = shared_root(data)
        lease = None
        with suppress(FileNotFoundError):
            lease = lease_of(root.get(LEASE))
        holder = "" if lease is None or lease.is_released else lease.host.partition(".")[0]
        seen = [_standing(root, name, holder) for name in root.names(HOSTS)]
    return _with_own_names([each for each in seen if each is not None])


def _with_own_names(hosts: list[HostStanding]) -> list[HostStanding]:
    """Return hosts in the order of their names; those of one machine get names of their own."""
    names = [host.report.name for host in hosts]
    named = []
    for host in hosts:
        name = host.report.name
        if names.count(name) > 1:
            name = f"{name} ({host.id[:_ID_SHOWN]})"
        named.append(
            msgspec.structs.replace(host, report=msgspec.structs.replace(host.report, name=name))
        )
    return sorted(named, key=lambda host: host.report.name)


def _standing(root: SharedRoot, name: str, holder: str) -> HostStanding | None:
    path = f"{HOSTS}/{name}"
    try:
        beat = msgspec.json.decode(root.get(path), type=Beat)
        report = msgspec.json.decode(beat.about, type=HostReport)
    except (FileNotFoundError, msgspec.MsgspecError):  # it has stopped, or is of another version
        return None
    age_s = root.age_s(path)
    standing = HostStanding(
        id=name,
        report=report,
        age_s=round(age_s, 1),
        is_silent=age_s >= SILENT_S,
        has_lease=name == holder,
        state_lag=report.state_lag,
        view_lag=report.view_lag,
    )
    return msgspec.structs.replace(standing, notes=list(_notes_of(standing)))


class HostLook:
    """Looks at the hosts for a process that is asked often."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._turn = threading.Lock()
        self._seen = HostList()
        self._until_s = 0.0

    def seen(self) -> HostList:
        """Return the hosts as they were at most five seconds ago."""
        with self._turn:
            if time.monotonic() >= self._until_s:
                try:
                    self._seen = HostList(host_standings(self._data))
                except JournalUnavailable as error:
                    self._seen = HostList(text=str(error))
                self._until_s = time.monotonic() + _FRESH_S
            return self._seen
