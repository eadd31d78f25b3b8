"""Retention: decides which epochs of the journal may be forgotten, and names the readers in the way.

An epoch stays while it is needed: by a snapshot (the epochs after it), by the SQL view (the epochs
that it has not applied), by a view of streams (those that it has not shown, up to a bound), by a lease, or by replies whose
request ids are still known. A view of classes or rows needs none: it takes the newest snapshot.
`retention.maintenance` removes epochs.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files.roots import journal_root
from penstock.journal.api import Journal, newest_epoch
from penstock.journal.deployments import Deployments
from penstock.process.config import Config, HistoryConfig
from penstock.process.view_files import read_reports
from penstock.retention.leases import RetentionLease, active_leases
from penstock.snapshots.snapshot import Snapshots

MEGABYTE: Final = 1 << 20
VIEW: Final = "view"
VIEW_EPOCH: Final = "epoch"
"""The file in the folder of the view with the newest epoch that the view has applied."""


class RetentionDecision(msgspec.Struct, frozen=True):
    """The epochs that may be forgotten.

    Attributes:
        base: The epoch of the snapshot that history begins with; None if nothing is forgotten.
        wanted: The oldest epoch that the settings keep; 0 if they keep everything.
        holders: The leases on epochs older than `wanted`, the oldest first.
    """

    base: Epoch | None
    wanted: Epoch
    holders: tuple[RetentionLease, ...]


def decide(
    config: Config, journal: Journal, snapshots: Snapshots, now_us: int
) -> RetentionDecision:
    """Decide which epochs may be forgotten.

    Args:
        now_us: The time, microseconds since the Unix epoch.

    Returns:
        The decision, which depends on nothing else but the leases of the data directory.

    Raises:
        Corrupt: The journal or a savepoint is damaged.
    """
    newest = newest_epoch(journal)
    wanted = _wanted(config.history, journal, newest, now_us)
    if wanted <= journal.first():
        return RetentionDecision(None, wanted, ())
    needs = [
        *active_leases(config.data),
        *_view(config.data),
        *_views(config, journal, newest, now_us),
        RetentionLease(
            "replies to request ids that are known", _known(config, journal, newest, now_us)
        ),
    ]
    bound = min([wanted, *(lease.epoch for lease in needs)])
    base = snapshots.newest(Epoch(bound - 1))
    begins = Epoch(0 if base is None else base.epoch + 1)
    if begins < bound == wanted:
        needs.append(RetentionLease("the snapshot that history would begin with", begins))
    holders = sorted(
        (lease for lease in needs if lease.epoch < wanted), key=lambda lease: lease.epoch
    )
    forgets = base is not None and begins > journal.first()
    return RetentionDecision(base.epoch if base and forgets else None, wanted, tuple(holders))


def surplus_snapshots(snapshots: Iterable[Epoch], most: int, first: Epoch) -> list[Epoch]:
    """Return the snapshots to remove, so that a few stay, densely for new epochs.

    The newest stays, and the oldest that the journal continues. Between them the snapshot goes first
    whose absence lengthens the way to an epoch least, in proportion to the age of the epoch.

    Args:
        most: The number that may stay, at least 2.
        first: The oldest epoch of the journal; snapshots before its predecessor are useless.
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
    """Return the oldest epoch that was committed since a time; without one, the newest plus 1."""
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


def _views(
    config: Config, journal: Journal, newest: Epoch, now_us: int
) -> Iterator[RetentionLease]:
    """Yield the lease of each view of streams that is behind; a view that stays behind must not fill the disk."""
    behind = [
        report
        for report in read_reports(config.data)
        if report.streams and BEFORE_FIRST < report.epoch < newest
    ]
    if not behind:
        return
    declared = Deployments(journal_root(config.data)).views()
    bounds, most = [journal.first()], config.history
    if most.views_s:
        bounds.append(_first_since(journal, newest, now_us - most.views_s * 1_000_000))
    if most.views_mb:
        bounds.append(_first_within(journal, newest, most.views_mb * MEGABYTE))
    for report in behind:
        if report.name in declared:
            yield RetentionLease(f"view {report.name}", max(Epoch(report.epoch + 1), *bounds))


def _view(data: Path) -> list[RetentionLease]:
    """Return the lease of the view, if a view has begun."""
    try:
        applied = int((data / VIEW / VIEW_EPOCH).read_text())
    except FileNotFoundError:
        return []
    except ValueError:
        return [RetentionLease("the SQL view, whose epoch cannot be read", Epoch(0))]
    return [] if applied == BEFORE_FIRST else [RetentionLease("the SQL view", Epoch(applied + 1))]
