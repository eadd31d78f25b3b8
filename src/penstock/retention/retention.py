"""Retention: what of the journal may be forgotten, and who is in the way.

Promises never to let go what somebody needs: a snapshot (the epochs after it), the SQL view (those
that it has not applied), savepoints and readers that hold an epoch, and replies whose request ids
are still known. It says of each how far back it reaches. Leaves removing to `upkeep`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.journal.api import Journal
from penstock.process.config import Config, HistoryConfig
from penstock.retention.leases import Hold, holds
from penstock.snapshots.snapshot import Snapshots

MEGABYTE: Final = 1 << 20
VIEW: Final = "view"
VIEW_EPOCH: Final = "epoch"
"""In the folder of the view: what it has applied."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What may be forgotten.

    Attributes:
        base: The snapshot that history begins with from now on; None where nothing is forgotten.
        wanted: The oldest epoch that the settings want to keep; 0 where they keep everything.
        holders: Who needs older epochs than `wanted`, the oldest need first.
    """

    base: Epoch | None
    wanted: Epoch
    holders: tuple[Hold, ...]


def judge(config: Config, journal: Journal, snapshots: Snapshots, now_us: int) -> Verdict:
    """Find out what may be forgotten.

    Raises:
        Corrupt: The journal, or what says who holds an epoch, is damaged.
    """
    last = journal.last()
    newest = BEFORE_FIRST if last is None else last.epoch
    wanted = _wanted(config.history, journal, newest, now_us)
    if wanted <= journal.first():
        return Verdict(None, wanted, ())
    needs = [
        *holds(config.data),
        *_view(config.data),
        Hold("replies to request ids that are known", _known(config, journal, newest, now_us)),
    ]
    bound = min([wanted, *(one.epoch for one in needs)])
    base = snapshots.newest(Epoch(bound - 1))
    begins = Epoch(0 if base is None else base.epoch + 1)
    if begins < bound == wanted:
        needs.append(Hold("the snapshot that history would begin with", begins))
    holders = sorted((one for one in needs if one.epoch < wanted), key=lambda one: one.epoch)
    forgets = base is not None and begins > journal.first()
    return Verdict(base.epoch if base and forgets else None, wanted, tuple(holders))


def surplus(snapshots: Iterable[Epoch], most: int, first: Epoch) -> list[Epoch]:
    """Return which snapshots to remove, so that few are left, the denser the newer.

    The newest stays, and the oldest that the journal continues; between them those go first whose
    absence makes the way to an epoch longer the least, in proportion to its age.

    Args:
        snapshots: Their epochs.
        most: How many may stay, at least 2.
        first: The oldest epoch that the journal holds: what is older than the state before it is
            of no use.
    """
    every = sorted(snapshots)
    kept = [epoch for epoch in every if epoch + 1 >= first]
    while len(kept) > most:
        newest = kept[-1]
        inner = range(1, len(kept) - 1)
        del kept[min(inner, key=lambda at: (kept[at + 1] - kept[at - 1]) / (newest - kept[at - 1]))]
    return [epoch for epoch in every if epoch not in kept]


def _wanted(settings: HistoryConfig, journal: Journal, newest: Epoch, now_us: int) -> Epoch:
    """Return the oldest epoch that no bound excludes."""
    wanted = 0
    if settings.keep_epochs:
        wanted = max(wanted, newest + 1 - settings.keep_epochs)
    if settings.keep_s:
        since_us = now_us - settings.keep_s * 1_000_000
        wanted = max(wanted, _first_since(journal, newest, since_us))
    if settings.keep_mb:
        wanted = max(wanted, _first_within(journal, newest, settings.keep_mb * MEGABYTE))
    return Epoch(wanted)


def _known(config: Config, journal: Journal, newest: Epoch, now_us: int) -> Epoch:
    """Return the oldest epoch with a request whose id may still be known."""
    return _first_since(journal, newest, now_us - config.retention_s * 1_000_000)


def _first_since(journal: Journal, newest: Epoch, since_us: int) -> Epoch:
    """Return the oldest epoch that was committed since a time; the one after the newest if none."""
    low, high = int(journal.first()), newest + 1
    while low < high:
        middle = (low + high) // 2
        commit = next(iter(journal.commits(Epoch(middle - 1), Epoch(middle))))
        if commit.time_us >= since_us:
            high = middle
        else:
            low = middle + 1
    return Epoch(low)


def _first_within(journal: Journal, newest: Epoch, most: int) -> Epoch:
    """Return the oldest epoch from which on all parts together are at most so many bytes."""
    sizes = [
        (commit.epoch, sum(part.size for part in commit.parts))
        for commit in journal.commits(Epoch(journal.first() - 1), newest)
    ]
    total = 0
    for epoch, size in reversed(sizes):
        total += size
        if total > most:
            return Epoch(epoch + 1)
    return journal.first()


def _view(data: Path) -> list[Hold]:
    """Return what the view needs, if there is one that has begun."""
    try:
        applied = int((data / VIEW / VIEW_EPOCH).read_text())
    except FileNotFoundError:
        return []
    except ValueError:
        return [Hold("the SQL view, which does not say how far it is", Epoch(0))]
    return [] if applied == BEFORE_FIRST else [Hold("the SQL view", Epoch(applied + 1))]
