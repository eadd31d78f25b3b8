"""The head of a journal: the decisions about its newest epoch, without input, output or clock.

`commits` carries out what they ask for. An epoch belongs to the driver whose bytes are under its name. A name that is free
may be an old one, whose commit was merged and removed; names stay for `keeps_s` seconds, so a process that has looked lately
need not ask the segments.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final

import msgspec

from penstock.base.decision import Now, Pause
from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Diverged, Fenced
from penstock.files.shared_root import UnclearOutcome
from penstock.journal.api import UnclearCommit


class List(msgspec.Struct, frozen=True):
    """Ask for the newest epoch in a list of all names."""


class Has(msgspec.Struct, frozen=True):
    """Ask whether an epoch has its name."""

    epoch: Epoch


class Merged(msgspec.Struct, frozen=True):
    """Ask for the newest epoch in a segment."""


class Settle(msgspec.Struct, frozen=True):
    """Ask that the names which were seen are durable."""


class Create(msgspec.Struct, frozen=True):
    """Ask for the name of an epoch, for a text: whether the name has this text now; raises `UnclearOutcome`.

    Attributes:
        parts: The paths of the parts that the text names: they are durable before the name is visible.
    """

    epoch: Epoch
    text: bytes
    parts: Sequence[str] = ()


class Clocks(msgspec.Struct, frozen=True):
    """Ask for the time by two clocks: the one may be set back, the other stands still while a machine sleeps."""


Ask = List | Has | Merged | Settle | Create | Clocks | Now | Pause

# One object of each question that is always the same: a process that waits asks very often.
_LIST: Final = List()
_MERGED: Final = Merged()
_SETTLE: Final = Settle()
_CLOCKS: Final = Clocks()
_NOW: Final = Now()

_LONGER_SHARE: Final = 0.5
"""The growth of the pauses between two looks: an epoch is seen too late by a sixth of its time on average, and costs few looks."""


class Head:
    """What one process knows of the newest epoch.

    Attributes:
        newest: The newest epoch that it has seen; None before the first look.
    """

    def __init__(self, app: str, keeps_s: float) -> None:
        """Know nothing yet.

        Args:
            keeps_s: A useless name stays for this number of seconds.
        """
        self.newest: Epoch | None = None
        self._app = app
        self._keeps_s = keeps_s
        self._doubtful: bytes | None = None  # the text of a commit whose outcome is unclear
        self._looked = (0.0, 0.0)  # when it has looked for the newest last, by both clocks

    def looking(self) -> Generator[Ask, Any, Epoch]:
        """Find the newest committed epoch, -1 before the first; it is durable."""
        known: Epoch = self.newest if self.newest is not None else (yield _LIST)
        newest = known
        if self._keeps_s and self.newest is not None:
            # First, because after a long sleep the next name may be that of a driver which slept, too, and was fenced after
            # it had created the name again.
            newest = max(newest, (yield from self._removable()))
        while True:
            if (yield Has(Epoch(newest + 1))):
                newest = Epoch(newest + 1)
            elif (removable := (yield from self._removable())) > newest:
                newest = removable
            else:
                break
        if newest != known or self.newest is None:
            # The writer of the name may not have synced the directory yet.
            yield _SETTLE
        self.newest = newest
        if self._keeps_s:
            self._looked = yield _CLOCKS
        return newest

    def _removable(self) -> Generator[Ask, Any, Epoch]:
        """Find the newest epoch whose commit may have been merged and removed since the last look for the newest."""
        if (yield from self._looked_lately()):
            return BEFORE_FIRST
        merged: Epoch = yield _MERGED
        return merged

    def _looked_lately(self) -> Generator[Ask, Any, bool]:
        """Say whether no name that was free at the last look can be an old one."""
        if not self._keeps_s or self.newest is None:
            return False
        since = [now - then for now, then in zip((yield _CLOCKS), self._looked, strict=True)]
        is_late: bool = max(since) >= self._keeps_s / 2
        return not is_late

    def is_next(self, epoch: Epoch) -> Generator[Ask, Any, bool]:
        """Say whether the name of an epoch alone tells whether it is committed, without a look for the newest one."""
        return epoch - 1 == self.newest and (yield from self._looked_lately())

    def finding(self, epoch: Epoch) -> Generator[Ask, Any, Epoch]:
        """Take note that an epoch has its name, and return the newest committed epoch; it is durable."""
        if not (yield from self.is_next(epoch)):
            return (yield from self.looking())
        yield _SETTLE
        self.newest = epoch
        return epoch

    def beginning(self, epoch: Epoch) -> Generator[Ask, Any, Epoch]:
        """Find the newest committed epoch before the commit of an epoch, for `committing`."""
        # A rival's name fails the create, so a look before it would only cost its time.
        is_next = yield from self.is_next(epoch)
        return Epoch(epoch - 1) if is_next else (yield from self.looking())

    def committing(
        self, epoch: Epoch, text: bytes, newest: Epoch, parts: Sequence[str] = ()
    ) -> Generator[Ask, Any, None]:
        """Create the commit of an epoch, after `beginning` has found `newest`.

        Args:
            parts: The paths of the parts that the text names.

        Raises:
            Diverged: The epoch before it does not exist.
            Fenced: The epoch is another driver's.
            UnclearCommit: The outcome is unknown; the same text can be committed again.
        """
        if epoch > newest + 1:
            raise Diverged(f"epoch {epoch} cannot follow epoch {newest}")
        # The name of an unclear commit may be free by now, although the look is new: its epoch was merged meanwhile.
        if epoch <= newest and (text != self._doubtful or (yield _MERGED) >= epoch):
            raise self._fenced(epoch)
        former, self._doubtful = self._doubtful, text
        is_ours = False
        try:
            is_ours = yield Create(epoch, text, parts)
            # The name may have been free because its commit was merged and removed.
            is_old = is_ours and (yield from self._removable()) >= epoch
        except OSError as error:
            if not (is_ours or isinstance(error, UnclearOutcome)):
                self._doubtful = former
                raise
            raise UnclearCommit(
                f"cannot make sure of epoch {epoch}, whose outcome is unknown: {error.strerror}"
            ) from error
        if is_old or not is_ours:
            raise self._fenced(epoch)
        self._doubtful = None

    def committed(self, epoch: Epoch) -> None:
        """Take note that an epoch exists."""
        self.newest = max(epoch, self.newest or epoch)

    def _fenced(self, epoch: Epoch) -> Fenced:
        return Fenced(f"epoch {epoch} exists already: another driver runs {self._app!r}")


def pause_after(waited_s: float, look_s: tuple[float, float]) -> float:
    """Return the pause after a look for an epoch, between the shortest and the longest one; it grows with the wait."""
    shortest_s, longest_s = look_s
    return min(shortest_s + _LONGER_SHARE * waited_s, longest_s)


def following(
    epoch: Epoch,
    timeout_s: float,
    look_s: tuple[float, float],
    waited_s: float = 0.0,
    rest_s: float = 0.0,
) -> Generator[Ask, Any, bool]:
    """Wait until an epoch has its name; return False when the time is up.

    It does not look once more when the time is up in a pause.

    Args:
        look_s: The shortest and the longest pause between two looks; a pause may end earlier.
        waited_s: The time for which the caller has waited for it already.
        rest_s: The time that is left of the last pause of that wait.
    """
    now = yield _NOW
    began, deadline, pause_s = now - waited_s, now + timeout_s, rest_s
    while True:
        if pause_s > 0:
            is_cut = pause_s > deadline - now
            yield Pause(min(pause_s, deadline - now))
            now = yield _NOW
            if is_cut and now >= deadline:
                return False
        if (yield Has(epoch)):
            return True
        now = yield _NOW
        if now >= deadline:
            return False
        pause_s = pause_after(now - began, look_s)


def forgettable(before: Epoch, ages: Iterable[tuple[Epoch, float]], keeps_s: float) -> Epoch:
    """Return the newest epoch whose own names are useless, and have been so for long enough.

    Args:
        before: The epoch before the first segment.
        ages: The last epoch of each segment, in order, and the seconds since its index was written.
        keeps_s: How long a useless name stays.
    """
    upto = before
    for last, age_s in ages:
        if age_s < keeps_s:
            break
        upto = last
    return upto
