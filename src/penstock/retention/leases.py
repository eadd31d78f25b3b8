"""Leases: a reader that needs history keeps epochs from being forgotten.

A lease names an epoch; this epoch and all later ones stay readable. A savepoint is a lease without
end. A process that reads history for a while (a backup, say) has a file,
`run/hold-<pid>-<token>.json`, which counts while that process lives. Retention asks for
`active_leases` before it removes anything.

If the journal is in an object store, readers may be on other hosts. Then a process has one name there, `leases/<token>.json`, with all of
its leases, and changes it again and again (`files.heartbeat`). The host that removes epochs notes what it has seen of these names, so a
dead process keeps them for a minute, counted by the clock of that host alone.

Every lease that existed before `active_leases` was called is in its result. A reader takes its lease
first and looks at the epochs afterwards: epochs may have gone just before.
"""

import errno
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, Self

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import OperationalError
from penstock.files import durable
from penstock.files.heartbeat import Beat, Heartbeat, Sight, seen_again
from penstock.files.layout import LEASES, RUN
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot
from penstock.process.presence import Presence, boot_id, presence_of_this
from penstock.retention import savepoints

_ROLE: Final = "hold"
_EPOCH: Final = "epoch"
_SIGHTS: Final = "leases-seen.json"
_NEVER: Final = Epoch(-1)
_MAY_ONLY_READ: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class RetentionLease(NamedTuple):
    """The need of a reader for history.

    Attributes:
        epoch: The oldest epoch that is needed, with all that follow.
    """

    who: str
    epoch: Epoch


def active_leases(data: Path) -> list[RetentionLease]:
    """Return all leases on a data directory, the oldest epoch first."""
    leases = [
        RetentionLease(f"savepoint {savepoint.name}", savepoint.epoch)
        for savepoint in savepoints.every(data)
    ]
    for path in (data / RUN).glob(f"{_ROLE}-*.json"):
        lease = _read(path)
        if lease is not None and lease.alive:
            leases.append(RetentionLease(f"{lease.app} (process {lease.pid})", _epoch_of(lease)))
    root = shared_root(data)
    if root.keeps_s:
        leases += _leases_of_hosts(root, data / RUN / _SIGHTS)
    return sorted(leases, key=lambda lease: (lease.epoch, lease.who))


@contextmanager
def lease(data: Path, who: str, epoch: Epoch) -> Iterator[None]:
    """Keep an epoch and all later ones until the block or this process ends.

    A process that may only read takes no lease: a medium that cannot change needs no lease, and in a
    directory of another user epochs may go while they are read.
    """
    root = shared_root(data)
    held = _HeldLeases.of_this(root) if root.keeps_s else None
    path = data / RUN / f"{_ROLE}-{os.getpid()}-{secrets.token_hex(4)}.json"
    try:
        if held is not None:
            held.take(path.stem, RetentionLease(who, epoch))
        else:
            _write(path, presence_of_this(_ROLE, who, {_EPOCH: epoch}))
        is_held = True
    except OSError as error:
        if error.errno not in _MAY_ONLY_READ:
            place = path if held is None else f"{root}/{LEASES}"
            raise OperationalError(f"cannot write {place}: {error.strerror}") from error
        is_held = False
    try:
        yield
    finally:
        if held is not None and is_held:
            held.give_back(path.stem)
        elif is_held:
            path.unlink(missing_ok=True)


class _HeldLeases:
    """The leases of this process in an object store; safe for threads."""

    _of: ClassVar[dict[tuple[int, str], Self]] = {}

    @classmethod
    def of_this(cls, root: SharedRoot) -> Self:
        """Return those of this process; a fork has leases of its own."""
        return cls._of.setdefault((os.getpid(), str(root)), cls(root))

    def __init__(self, root: SharedRoot) -> None:
        self._root = root
        self._leases: dict[str, RetentionLease] = {}
        self._turn = threading.Lock()
        self._heart: Heartbeat | None = None
        self._told = _NEVER  # the oldest epoch that the name says
        self._pid = os.getpid()

    def take(self, token: str, lease: RetentionLease) -> None:
        """Add a lease; when this returns, all hosts see that its epoch is needed."""
        with self._turn:
            self._leases[token] = lease
            try:
                if self._heart is None:
                    name = f"{LEASES}/{self._pid}-{secrets.token_hex(8)}.json"
                    heart = Heartbeat(self._root, name, self._said)
                    heart.begin()
                    self._heart = heart
                elif lease.epoch < self._told:
                    self._heart.beat()
            except OSError:
                del self._leases[token]
                raise

    def give_back(self, token: str) -> None:
        """Remove a lease."""
        with self._turn:
            del self._leases[token]
            if not self._leases and self._heart is not None:
                self._heart.end()
                self._heart = None

    def _said(self) -> list[RetentionLease]:
        said = list(self._leases.copy().values())
        self._told = min((lease.epoch for lease in said), default=_NEVER)
        who = f"process {self._pid} on {socket.gethostname()}"
        return [RetentionLease(f"{lease.who} ({who})", lease.epoch) for lease in said]


def _leases_of_hosts(root: SharedRoot, sights: Path) -> Iterator[RetentionLease]:
    """Yield the leases of living processes of all hosts, and remove the others.

    Args:
        sights: The file of what this host has seen.
    """
    try:
        former = msgspec.json.decode(sights.read_bytes(), type=dict[str, Sight])
    except (OSError, msgspec.DecodeError):
        former = {}  # then all of them are new, and live for another minute
    seen: dict[str, Sight] = {}
    for name in list(root.names(LEASES)):
        path = f"{LEASES}/{name}"
        sight = seen_again(root, path, former.get(name), boot_id())
        if sight is None:
            continue
        if sight.is_dead:
            root.remove(path)
            continue
        seen[name] = sight
        with suppress(FileNotFoundError):  # it was given back just now
            said = msgspec.json.decode(root.get(path), type=Beat).about
            yield from msgspec.json.decode(said, type=list[RetentionLease])
    if seen != former:
        sights.parent.mkdir(exist_ok=True)
        durable.replace(sights, msgspec.json.encode(seen))


def _write(path: Path, lease: Presence) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_dead(path.parent)
    durable.replace(path, msgspec.json.encode(lease))


def _remove_dead(folder: Path) -> None:
    for path in folder.glob(f"{_ROLE}-*.json"):
        lease = _read(path)
        if lease is not None and not lease.alive:
            path.unlink(missing_ok=True)


def _epoch_of(lease: Presence) -> Epoch:
    return Epoch(int(lease.details[_EPOCH]))


def _read(path: Path) -> Presence | None:
    """Return a lease; None if it was removed meanwhile. Files of leases are never torn."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Presence)
    except (OSError, msgspec.DecodeError):
        return None
