"""Holds: what must stay readable, and for whom.

A hold names an epoch; everything from it on is needed. Savepoints hold for ever. A process that
reads history for a while (a backup, say) holds by a file of its own, `run/hold-<pid>-<token>.json`,
which counts while that very process lives. Retention asks `holds` before it removes anything.

Promises that a hold which was there before `holds` was called is in its answer. Who takes a hold
looks at what he wants to read afterwards: what was removed just before is gone.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

from penstock.base.ids import Epoch
from penstock.errors import OperationalError
from penstock.files import durable
from penstock.process.presence import FOLDER, Presence
from penstock.retention import savepoints

_ROLE: Final = "hold"
_EPOCH: Final = "epoch"
_MAY_ONLY_READ: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class Hold(NamedTuple):
    """Somebody who needs history.

    Attributes:
        who: For people: what retention says is in its way.
        epoch: The oldest epoch that is needed, with all that follow.
    """

    who: str
    epoch: Epoch


def holds(data: Path) -> list[Hold]:
    """Return everything that is held in a data directory now, the oldest need first.

    Raises:
        Corrupt: A savepoint is damaged, so that nobody knows what it holds.
    """
    found = [Hold(f"savepoint {one.name}", one.epoch) for one in savepoints.every(data)]
    for path in (data / FOLDER).glob(f"{_ROLE}-*.json"):
        lease = _read(path)
        if lease is not None and lease.alive:
            found.append(Hold(f"{lease.app} (process {lease.pid})", _epoch_of(lease)))
    return sorted(found, key=lambda one: (one.epoch, one.who))


@contextmanager
def holding(data: Path, who: str, epoch: Epoch) -> Iterator[None]:
    """Hold everything from an epoch on until the block ends, or this process does.

    Where this process may only read, nothing is held: a copy on a medium that cannot change needs
    no hold, and from a directory of somebody else's, epochs may go while they are read.

    Raises:
        OperationalError: The disk is full or fails, so nothing is held.
    """
    path = data / FOLDER / f"{_ROLE}-{os.getpid()}-{secrets.token_hex(4)}.json"
    lease = Presence(os.getpid(), _ROLE, who, psutil.Process().create_time(), {_EPOCH: epoch})
    held = _write(path, lease)
    try:
        yield
    finally:
        if held:
            path.unlink(missing_ok=True)


def _write(path: Path, lease: Presence) -> bool:
    """Write a lease; return whether this process may."""
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
    """Return a lease; None where it was removed just now: it appears whole, so it is never torn."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Presence)
    except (OSError, msgspec.DecodeError):
        return None
