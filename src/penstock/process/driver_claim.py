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
from pathlib import Path
from typing import Final

from penstock.base.decision import Now, Pause, carried_out
from penstock.errors import Fenced
from penstock.files import durable
from penstock.files.durable import storage
from penstock.files.layout import HOST_ID, LEASE
from penstock.files.roots import shared_root, store_of
from penstock.files.shared_root import SharedRoot
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
    releasing,
    taking,
)
from penstock.process.presence import boot_id

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


class _LeaseThread:
    """A thread that gets the lease, keeps it, and gives it up."""

    def __init__(self, data: Path, on_loss: Callable[[Fenced], object]) -> None:
        # With the boot, because a lock says nothing of a copy of the folder on another machine.
        self._folder = _host_id(data)
        host, name = f"{self._folder}.{boot_id()}", socket.gethostname()
        self._mine = Lease(run=secrets.token_hex(8), host=host, name=name, pid=os.getpid())
        self._root: SharedRoot = shared_root(data)
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
                    answer = self._root.get(LEASE)
            case Prove():
                self._root.replace(f"{LEASE}.{self._folder}", b"")
            case Change():
                answer = self._is_changed(ask)
        return answer

    def _is_changed(self, ask: Change) -> bool:
        after: bytes | None = None

        def edit(present: bytes | None) -> bytes | None:
            nonlocal after
            after = ask.edit(present)
            return after

        self._root.change(LEASE, edit)
        return after is not None


class _Ending(Exception):
    """The process gives the lease up."""


def _host_id(data: Path) -> str:
    """Return the id of a host folder, which is drawn at its first use."""
    path = data / HOST_ID
    with suppress(FileExistsError):
        durable.publish(path, secrets.token_hex(8).encode())
    return path.read_text()
