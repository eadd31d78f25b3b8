"""Leases: a reader that needs history keeps epochs from being forgotten.

A lease names an epoch; this epoch and all later ones stay readable. A savepoint is a lease without
end. A process that reads history for a while (a backup, say) has a file,
`run/hold-<pid>-<token>.json`, which counts while that process lives. Retention asks for
`active_leases` before it removes anything.

Every lease that existed before `active_leases` was called is in its result. A reader takes its lease
first and looks at the epochs afterwards: epochs may have gone just before.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import OperationalError
from penstock.files import durable
from penstock.files.layout import RUN
from penstock.process.presence import Presence, presence_of_this
from penstock.retention import savepoints

_ROLE: Final = "hold"
_EPOCH: Final = "epoch"
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
    return sorted(leases, key=lambda lease: (lease.epoch, lease.who))


@contextmanager
def lease(data: Path, who: str, epoch: Epoch) -> Iterator[None]:
    """Keep an epoch and all later ones until the block or this process ends.

    A process that may only read takes no lease: a medium that cannot change needs no lease, and in a
    directory of another user epochs may go while they are read.
    """
    path = data / RUN / f"{_ROLE}-{os.getpid()}-{secrets.token_hex(4)}.json"
    lease = presence_of_this(_ROLE, who, {_EPOCH: epoch})
    held = _write(path, lease)
    try:
        yield
    finally:
        if held:
            path.unlink(missing_ok=True)


def _write(path: Path, lease: Presence) -> bool:
    """Write a lease; return whether this process is allowed to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead(path.parent)
        durable.replace(path, msgspec.json.encode(lease))
    except OSError as error:
        if error.errno in _MAY_ONLY_READ:
            return False
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error
    return True


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
