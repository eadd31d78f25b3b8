"""`CaptureStanding`: how a capture stands, for people: its report, the orders of operators, and its process."""

from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import PenstockError
from penstock.files.layout import CAPTURES
from penstock.files.roots import journal_root
from penstock.process.capture_files import ROLE, CaptureReport, CaptureState, read_capture_report
from penstock.process.view_files import held, read_orders

STOPPED: Final = "stopped"
"""The state of a capture whose process does not run."""

STARTING: Final = "starting"


class CaptureStanding(msgspec.Struct, frozen=True):
    """A capture at one moment.

    Attributes:
        name: The name of its stream.
        source: The kind of the database; empty before it has run.
        state: A `CaptureState`, or `stopped` or `starting`.
        source_lsn: The position of the newest transaction that is on the stream, as the database writes it.
        rows: The rows that were taken since the start of its process.
        unfit: Those of them that the record cannot hold.
        lag_s: How long ago the newest transaction on the stream was committed when it came; 0 if nothing is left to take.
        lag_bytes: How far the log of the database is ahead; None while it is not known.
        retained_bytes: How much of its log the database keeps for the slot; None while it is not known.
        slot: The name of the replication slot.
        reason: Why it does not follow; else empty.
        remedy: What an operator does; empty if nothing is to be done.
        time_us: When it last told of itself; 0: never.
        untaken: The columns that no field takes.
    """

    name: str
    source: str
    state: str
    source_lsn: str
    rows: int
    unfit: int
    lag_s: float
    lag_bytes: int | None
    retained_bytes: int | None
    slot: str
    reason: str
    remedy: str
    time_us: int
    untaken: list[str] = []


def capture_standings(data: Path) -> list[CaptureStanding]:
    """Return how each stream of changes stands that the newest deployment declares.

    Raises:
        Corrupt: The file of deployments is damaged.
    """
    from penstock.journal.deployments import Deployments  # noqa: PLC0415 -- a command's help does not need the model

    declared = Deployments(journal_root(data)).captures()
    if not declared:
        return []
    from penstock.process import presence  # noqa: PLC0415 -- psutil, which a command's help does not need

    running = {process.details.get("capture") for process in presence.find(data, ROLE)}
    return [_standing_of(data, name, runs=name in running) for name in declared]


def _standing_of(data: Path, name: str, *, runs: bool) -> CaptureStanding:
    report = read_capture_report(data, name) or CaptureReport(name, "", CaptureState.WAITING)
    state, reason, remedy = _state_of(data, report, runs=runs)
    return CaptureStanding(
        name,
        report.source,
        state,
        report.source_lsn,
        report.rows,
        report.unfit,
        report.lag_s,
        report.lag_bytes,
        report.retained_bytes,
        report.slot,
        reason,
        remedy,
        report.time_us,
        [*report.untaken],
    )


def _state_of(data: Path, report: CaptureReport, *, runs: bool) -> tuple[str, str, str]:
    """Return state, reason and remedy."""
    try:
        orders, hold = read_orders(data, report.name, CAPTURES), held(data)
    except PenstockError as error:  # a damaged file; the capture refuses to go on, too
        return CaptureState.REFUSED, str(error), ""
    # A hold and a pause are in force from their order on, before the capture tells that it obeys.
    if hold is not None:
        return CaptureState.HELD, hold.reason, "penstock resume"
    if orders.paused:
        reason = f": {orders.reason}" if orders.reason else ""
        return (
            CaptureState.PAUSED,
            f"by {orders.by}{reason}",
            f"penstock capture resume {report.name}",
        )
    if not runs:
        return STOPPED, "its process does not run", "penstock run starts it"
    is_old = not report.time_us or report.state in (CaptureState.HELD, CaptureState.PAUSED)
    return (STARTING, "", "") if is_old else (report.state, report.reason, report.remedy)
