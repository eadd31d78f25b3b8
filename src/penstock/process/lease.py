"""The lease: an object of the shared root that its holder, the driver, changes again and again.

A driver of another host takes it over when it has not changed for `EXPIRES_S`, by the own clock of the watcher, which only
goes forward. So no clock of another host is believed, and no time is compared between hosts. **A lease that lies costs time,
never correctness**: two drivers that both believe they hold it are kept apart by the commit alone, whose name only one can
create (`journal.head`). This module has the decisions, without input, output or clock; `process.driver_claim` carries
them out.

The count begins again whenever the store has not answered, or the watcher itself was stopped: a store that is away for
half a minute keeps the holder from changing the lease, too. Before a takeover the watcher writes a name of
its own, because a store may answer questions and take no writes.
"""

from collections.abc import Generator
from contextlib import suppress
from typing import Any, Final

import msgspec

from penstock.base.decision import Now, Pause
from penstock.base.ids import BEFORE_FIRST, Epoch

RENEW_S: Final = 1.0
"""The pause between two changes by the holder."""
LOOK_S: Final = 0.5
"""The pause between two looks of a watcher."""
PROVE_S: Final = 3.0
"""A watcher that has seen no change for so long tries whether the store takes writes."""
EXPIRES_S: Final = 7.0
"""A lease that has not changed for so long is taken over: the pause, one request without an answer, and its repetition."""
_LIVE_S: Final = 2 * EXPIRES_S
GAP_S: Final = 5.5
"""If no request and no pause may take so long, then a watcher that took longer was stopped."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the object.

    Attributes:
        run: The id of the holder, another one for each process.
        host: The id of the holder's host folder, and of the boot of its machine.
        name: The name of its host, for people.
        pid: The id of its process, for people.
        count: How often the holder has changed the lease.
        is_released: Whether the holder has given it up.
        epoch: The newest epoch that the holder has committed, as far as it is known: who watches need not ask the journal.
        changes: How often others have changed small files for which processes look (`files.lease_mark`).
    """

    run: str
    host: str
    name: str
    pid: int
    count: int = 0
    is_released: bool = False
    epoch: Epoch = BEFORE_FIRST
    changes: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.name}"

    @property
    def text(self) -> bytes:
        """The bytes of the object."""
        return msgspec.json.encode(self)


def lease_of(text: bytes | None) -> Lease | None:
    """Return the lease that an object has; None if there is none, or if the object has something else."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Lease)
    except msgspec.MsgspecError:
        return None


class LeaseStanding(msgspec.Struct, frozen=True):
    """The lease for people.

    Attributes:
        holder: The process that has it, and its host.
        host: The name of the holder's host.
        age_s: The seconds since its last change, by the clocks of this host and of the store.
        is_released: Whether the holder has given it up.
    """

    holder: str
    host: str
    age_s: float
    is_released: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the holder drives, as far as the clocks of this host and of the store tell; for people only."""
        return not self.is_released and self.age_s < _LIVE_S

    def __str__(self) -> str:
        state = "was given up by" if self.is_released else "is held by"
        return f"the lease {state} {self.holder}, changed {self.age_s:.1f} s ago"


class Read(msgspec.Struct, frozen=True):
    """Ask for the bytes of the object; None if it does not exist."""


class Prove(msgspec.Struct, frozen=True):
    """Ask to write another name, of this host."""


class Change(msgspec.Struct, frozen=True):
    """Ask to give the object the bytes of a lease, if it has `before` or those of the same run; whether it has them now."""

    before: bytes | None
    after: Lease

    def edit(self, present: bytes | None, newest: Epoch = BEFORE_FIRST) -> bytes | None:
        """Return the new bytes of the object, in place of the present ones; None to leave it as it is.

        Args:
            newest: The newest epoch that this process knows.
        """
        held = lease_of(present)
        is_own = held is not None and held.run == self.after.run
        counted = 0 if held is None else held.changes
        after = msgspec.structs.replace(self.after, epoch=newest, changes=counted)
        is_as_before = _signs(present, held) == _signs(self.before, lease_of(self.before))
        return after.text if is_own or is_as_before else None


Ask = Read | Prove | Change | Now | Pause


def taking(mine: Lease) -> Generator[Ask, Any, Lease]:
    """Watch the lease until this process holds it."""
    watch = _Watch()
    while True:
        asked_s = yield Now()
        try:
            present = yield Read()
            held = lease_of(present)
            unchanged_s = watch.saw(_signs(present, held), asked_s, (yield Now()))
            if _is_free(present, held, mine) or unchanged_s >= EXPIRES_S:
                if (yield Change(present, mine)):
                    return mine
                watch = _Watch()
            elif unchanged_s >= PROVE_S and not watch.is_proved:
                yield Prove()
                watch.is_proved = True
        except OSError:
            watch = _Watch()
        yield Pause(LOOK_S)


class _Watch:
    """How long a lease has not changed, as far as one watcher can tell."""

    def __init__(self) -> None:
        self.is_proved = False
        self._since_s: float | None = None
        self._last_s = 0.0
        self._signs: object = None

    def saw(self, signs: object, asked_s: float, answered_s: float) -> float:
        """Return for how many seconds the signs of life of a holder are unchanged for certain, at least."""
        was_stopped = max(asked_s - self._last_s, answered_s - asked_s) > GAP_S
        if self._since_s is None or signs != self._signs or was_stopped:
            self._signs, self._since_s, self.is_proved = signs, answered_s, False
        self._last_s = answered_s
        return max(0.0, asked_s - self._since_s)


def _signs(present: bytes | None, held: Lease | None) -> object:
    """Return the parts of a lease that only its holder changes; others count their changes in it."""
    return present if held is None else (held.run, held.count, held.is_released)


def _is_free(present: bytes | None, held: Lease | None, mine: Lease) -> bool:
    """Say whether a lease is free for certain: a process has the lock of its host folder before it asks for the lease."""
    if held is None:
        return present is None
    return held.is_released or held.host == mine.host


def keeping(mine: Lease) -> Generator[Ask, Any, None]:
    """Change the lease again and again, until another process holds it."""
    while True:
        yield Pause(RENEW_S)
        # Also after an error: bytes that are written twice are no change, and those of each try are of this run.
        mine = msgspec.structs.replace(mine, count=mine.count + 1)
        with suppress(OSError):
            if not (yield Change(None, mine)):
                return


def released_for(host: str, present: bytes | None) -> bytes | None:
    """Return the bytes of the lease of a host whose holder has ended without giving it up; None if there is none."""
    held = lease_of(present)
    if held is None or held.host != host or held.is_released:
        return None
    return msgspec.structs.replace(held, is_released=True).text


def releasing(mine: Lease) -> Generator[Ask, Any, None]:
    """Give the lease up, if this process has it; a watcher then takes it at once."""
    with suppress(OSError):  # it expires
        yield Change(mine.text, msgspec.structs.replace(mine, is_released=True))
