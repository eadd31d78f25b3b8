"""`DriverClaim`: the right of one process to be the driver of an application.

On a host it is the lock of a file in the host folder, which the kernel frees as soon as its holder has ended. Where the
shared root is in an object store, a driver also needs the lease (`process.lease`): first the lock, then the lease, so the
former holder on the same host has ended, and its lease is taken over at once. A thread watches the lease, and then keeps it.

Neither is a fence: the commit is. A driver that has lost the lease stops by itself.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from penstock.base.decision import Now, Pause, carried_out
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Fenced, JournalUnavailable
from penstock.files.durable import storage
from penstock.files.layout import LEASE
from penstock.files.roots import shared_root, store_of
from penstock.files.shared_root import Found, SharedRoot
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.lease import (
    EXPIRES_S,
    Ask,
    Change,
    Lease,
    LeaseStanding,
    Prove,
    Read,
    keeping,
    lease_of,
    released_for,
    releasing,
    taking,
)
from penstock.process.presence import boot_id, host_id

_log = logging.getLogger(__name__)

_PATIENCE_S: Final = EXPIRES_S + 8.0
"""How long the start of a driver waits for the lease of a holder that may have ended."""
_STOP_S: Final = 15.0
_LOOK_S: Final = 10.0


def lease_standing(data: Path) -> LeaseStanding | None:
    """Return how the lease of an application stands; None without one.

    Raises:
        JournalUnavailable: The object store does not answer.
    """
    if not store_of(data):
        return None
    with storage("read the lease"):
        root = shared_root(data)
        try:
            held = lease_of(root.get(LEASE))
        except FileNotFoundError:
            return None
        if held is None:
            return None
        age_s = max(0.0, root.age_s(LEASE))
    return LeaseStanding(str(held), held.name, age_s, held.is_released)


def driver_runs(data: Path) -> bool:
    """Say whether a driver of an application runs or starts, on this host or on another one."""
    # A driver that still starts will execute what waits, too.
    if any(presence.find(data, role) for role in presence.SINGLE):
        return True
    with suppress(JournalUnavailable):
        standing = lease_standing(data)
        return standing is not None and standing.is_live
    return False


class DriverClaim:
    """The lock, and the lease where there is one, of one process."""

    def __init__(self, data: Path, on_loss: Callable[[Fenced], object] = lambda _: None) -> None:
        """Ask for nothing yet.

        Args:
            on_loss: Called by a thread when another process has taken the lease.
        """
        self._data = data
        self._on_loss = on_loss
        self._lock: int | None = None
        self._lease: _LeaseThread | None = None

    @property
    def newest(self) -> Epoch:
        """The newest epoch that the driver of another host has told of; `BEFORE_FIRST` if none has."""
        return BEFORE_FIRST if self._lease is None else self._lease.seen

    def tell(self, newest: Epoch) -> None:
        """Tell those that watch the lease of the newest epoch, with its next change."""
        if self._lease is not None:
            self._lease.newest = newest

    def is_got(self) -> bool:
        """Ask for it, without a wait, and say whether this process has it."""
        if self._lock is None:
            try:
                self._lock = DataDirectory(self._data).claim()
            except Fenced:
                return False
        if not store_of(self._data):
            return True
        if self._lease is None:
            self._lease = _LeaseThread(self._data, self._on_loss)
        return self._lease.is_held()

    def get(self) -> None:
        """Get it, also from a driver of another host that has ended.

        Raises:
            Fenced: Another driver runs.
        """
        if self._lock is None:
            self._lock = DataDirectory(self._data).claim()
        deadline = time.monotonic() + _PATIENCE_S
        while not self.is_got():
            if time.monotonic() > deadline:
                standing = lease_standing(self._data)
                raise Fenced(
                    f"another driver runs the application in {store_of(self._data)}: {standing}; stop it, or start this "
                    "one with --standby"
                )
            time.sleep(0.05)

    def release(self) -> None:
        """Give it up; idempotent."""
        if self._lease is not None:
            self._lease.end()
            self._lease = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def give_up_for_dead(data: Path) -> None:
    """Give up the lease of a driver of this host that has ended without doing so; a standby of another host takes it at once."""
    if not store_of(data):
        return
    try:
        lock = DataDirectory(
            data
        ).claim()  # so the driver has ended, and no other one of this host has begun
    except Fenced:
        return
    try:
        shared_root(data).change(LEASE, partial(released_for, _host_of(data)))
    except OSError as error:
        _log.warning("the lease of the driver that has ended expires: %s", error)
    finally:
        os.close(lock)


def _host_of(data: Path) -> str:
    """Return the name of this host in leases: with the boot, because a lock says nothing of a copy of the folder elsewhere."""
    return f"{host_id(data)}.{boot_id()}"


class _LeaseThread:
    """A thread that gets the lease, keeps it, and gives it up.

    Attributes:
        newest: The newest epoch that this process knows.
        seen: The newest epoch that another holder has told of.
    """

    def __init__(self, data: Path, on_loss: Callable[[Fenced], object]) -> None:
        self.newest = self.seen = BEFORE_FIRST
        self._folder = host_id(data)
        host, name = _host_of(data), socket.gethostname()
        self._mine = Lease(run=secrets.token_hex(8), host=host, name=name, pid=os.getpid())
        self._root: SharedRoot = shared_root(data)
        self._known: Found | None = None
        self._on_loss = on_loss
        self._held, self._ending = threading.Event(), threading.Event()
        self._looked = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)
        self._thread.start()
        self._looked.wait(_LOOK_S)  # a lease that nobody holds is taken at the first look

    def is_held(self) -> bool:
        """Say whether this process has the lease; raise the error that makes it impossible."""
        if self._failure is not None:
            raise self._failure
        return self._held.is_set()

    def end(self) -> None:
        """Give the lease up."""
        self._ending.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            carried_out(taking(self._mine), self._answer)
            self._held.set()
            self._looked.set()
            _log.info("this driver has the lease")
            carried_out(keeping(self._mine), self._answer)
            self._held.clear()
            self._on_loss(Fenced("another host has taken the lease over; this driver stops"))
        except _Ending:
            if self._held.is_set():
                carried_out(releasing(self._mine), self._answer)
        except Exception as error:  # noqa: BLE001 -- whoever waits for the lease gets it
            self._failure = error
            if self._held.is_set():
                _log.exception("the lease is not kept any more")
        finally:
            self._looked.set()

    def _answer(self, ask: Ask) -> object:
        """Carry out what a decision asks for."""
        answer: object = None
        match ask:
            case Now():
                answer = time.monotonic()
            case Pause(seconds):
                self._looked.set()
                if self._ending.wait(seconds):
                    raise _Ending
            case Read():
                with suppress(FileNotFoundError):
                    answer = content = self._root.get(LEASE)
                    self._root.note_lease(content)
                    if (held := lease_of(content)) is not None:
                        self.seen = max(self.seen, held.epoch)
            case Prove():
                self._root.replace(f"{LEASE}.{self._folder}", b"")
            case Change():
                answer = self._is_changed(ask)
        return answer

    def _is_changed(self, ask: Change) -> bool:
        after: bytes | None = None

        def edit(present: bytes | None) -> bytes | None:
            nonlocal after
            after = ask.edit(present, self.newest)
            return after

        self._known = self._root.change(LEASE, edit, self._known)
        if self._known is not None:
            self._root.note_lease(self._known.data)
        return after is not None


class _Ending(Exception):
    """The process gives the lease up."""
