"""The report of maintenance, which commands read without the modules that do the work."""

from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch, Lsn
from penstock.files.layout import RUN
from penstock.retention.leases import RetentionLease

REPORT: Final = "maintenance.json"


class MaintenanceReport(msgspec.Struct, frozen=True):
    """The result of maintenance, and the state of history afterwards.

    Attributes:
        time_us: The time of its end, microseconds since the Unix epoch.
        snapshot: The epoch of the newest snapshot; -1 without one.
        rows: Entities in it.
        snapshots: The epochs of all snapshots.
        merged: Epochs that were merged this time.
        first: The oldest epoch that the journal holds.
        wanted: The oldest epoch that the settings want to keep.
        holders: The leases on older epochs.
        log_start: The oldest record in the log.
        failure: The error that ended it early; None without an error.
    """

    time_us: int = 0
    snapshot: Epoch = BEFORE_FIRST
    rows: int = 0
    snapshots: list[Epoch] = []
    merged: int = 0
    first: Epoch = Epoch(0)
    wanted: Epoch = Epoch(0)
    holders: list[RetentionLease] = []
    log_start: Lsn = Lsn(0)
    spent_s: float = 0.0
    failure: str | None = None


def last_report(data: Path) -> MaintenanceReport | None:
    """Return the last report; None if there is no readable report."""
    try:
        return msgspec.json.decode((data / RUN / REPORT).read_bytes(), type=MaintenanceReport)
    except (OSError, msgspec.MsgspecError):
        return None
