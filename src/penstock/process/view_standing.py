"""`ViewStanding`: how a view stands, for people: the report of its applier, the orders of operators, and its process."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt, PenstockError
from penstock.files.layout import ERASURES
from penstock.files.roots import journal_root, shared_root
from penstock.process.view_files import (
    ROLE,
    Held,
    ViewOrders,
    ViewReport,
    ViewState,
    held,
    known_views,
    read_gaps,
    read_orders,
    read_report,
)

if TYPE_CHECKING:
    from penstock.process.erasures import Certificate

STOPPED: Final = "stopped"
"""The state of a view whose applier does not run."""

STARTING: Final = "starting"
UNDECLARED: Final = "undeclared"
"""The state of a view that the newest deployment does not declare, and whose files are still there."""


class ViewStanding(msgspec.Struct, frozen=True):
    """A view at one moment.

    Attributes:
        name: The name of the view.
        target: The kind of its target; empty before its applier has run.
        state: A `ViewState`, or `stopped`, `starting` or `undeclared`.
        epoch: The last epoch that its tables show; -1 before the first.
        lag: The number of epochs that are committed and not shown.
        failed: The number of rows that are absent because their row function has failed.
        incomplete: Whether there are such rows, or gaps.
        reason: Why it does not follow, and that it is incomplete; else empty.
        remedy: What an operator does; empty if nothing is to be done.
        filled: The part of a fill that is done, from 0 to 1; None if the view is not being filled.
        rebuilding: Whether an order to rebuild it has not been carried out yet.
        time_us: When its applier last told of it; 0: never.
        personal: Whether it may show personal data.
        unerased: The epochs of the erasures that it has not passed.
        gaps: The events that its tables of streams lack because the journal has forgotten them, in a sentence for each table.
        asked_ms: How long the last questions of its SQL tables took, in milliseconds; None if it has none, or before the first.
        rests: Whether they take so long that the view waits longer than `every`, by `view.tables_percent`.
    """

    name: str
    target: str
    state: str
    epoch: Epoch
    lag: int
    failed: int
    incomplete: bool
    reason: str
    remedy: str
    filled: float | None
    rebuilding: bool
    time_us: int
    personal: bool = False
    unerased: list[Epoch] = []
    gaps: list[str] = []
    asked_ms: float | None = None
    rests: bool = False


def view_standings(data: Path, newest: Epoch) -> list[ViewStanding]:
    """Return how each view stands that the newest deployment declares, or that still has files.

    Args:
        newest: The newest epoch of the journal.

    Raises:
        Corrupt: The file of deployments is damaged.
    """
    from penstock.journal.deployments import Deployments  # noqa: PLC0415 -- a command's help does not need the model

    declared = Deployments(journal_root(data)).views()
    left = known_views(data).difference(declared)
    if not declared and not left:
        return []
    from penstock.process import presence  # noqa: PLC0415 -- psutil, which a command's help does not need

    erased = _erased_in(data, newest)
    running = {process.details.get("view") for process in presence.find(data, ROLE)}
    return [
        _standing_of(data, name, newest, erased, runs=name in running, is_declared=name in declared)
        for name in [*declared, *sorted(left)]
    ]


def _erased_in(data: Path, newest: Epoch) -> "list[Certificate]":
    """Return the certificates of all erasures."""
    if not shared_root(data).has(ERASURES):
        return []
    from penstock.journal.delta import identity_of  # noqa: PLC0415 -- pyarrow, which a command's help does not need
    from penstock.process.erasures import Erasures  # noqa: PLC0415 -- the model, as above

    try:
        return Erasures(data).every(identity_of(journal_root(data)), newest)
    except Corrupt:
        return []  # the appliers wait for it, and say so; the other views must be shown


def _unerased(erased: "list[Certificate]", passed: str) -> list[Epoch]:
    """Return the epochs of the erasures that a view has not passed."""
    if not erased:
        return []
    from penstock.process.erasures import behind  # noqa: PLC0415 -- as above

    return [Epoch(each.epoch) for each in behind(erased, passed)]


def _standing_of(
    data: Path,
    name: str,
    newest: Epoch,
    erased: "list[Certificate]",
    *,
    runs: bool,
    is_declared: bool,
) -> ViewStanding:
    report = read_report(data, name)
    epoch = BEFORE_FIRST if report is None else report.epoch
    failed = 0 if report is None else report.failed
    try:
        orders, hold = read_orders(data, name), held(data)
        gaps = [gap.text for gap in read_gaps(data, name)]
        state, reason, remedy = _state_of(name, report, orders, hold, runs=runs)
    except PenstockError as error:  # a damaged file; the applier refuses to go on, too
        orders, state, gaps = ViewOrders(), ViewState.REFUSED.value, []
        reason, remedy = str(error), ""
    if not is_declared:
        state, reason = UNDECLARED, "the newest deployment does not declare it"
        remedy = f"penstock view remove {name}"
    if failed:
        rows = "1 row is" if failed == 1 else f"{failed:,} rows are"
        absent = f"incomplete: {rows} absent because the row function failed, or the key of a query is not unique"
        reason = f"{reason}; {absent}" if reason else absent
        remedy = remedy or "see its table _failed, and correct the function, or the query"
    if gaps:
        reason = "; ".join(filter(None, (reason, *gaps)))
        remedy = remedy or "history.views_s and history.views_mb say how much is kept for a view"
    personal = report is not None and report.personal
    unerased = _unerased(erased, report.passed) if report is not None and personal else []
    if unerased:
        more = f" and {len(unerased) - 1} later ones" if unerased[1:] else ""
        late = f"it has not passed the erasure of epoch {unerased[0]}{more}"
        reason = f"{reason}; {late}" if reason else late
    return ViewStanding(
        name,
        "" if report is None else report.target,
        state,
        epoch,
        max(0, newest - epoch),
        failed,
        failed > 0 or bool(gaps),
        reason,
        remedy,
        None if report is None or not runs else report.filled,
        orders.rebuild > (0 if report is None else report.rebuilt),
        0 if report is None else report.time_us,
        personal,
        unerased,
        gaps,
        None if report is None else report.asked_ms,
        report is not None and runs and report.rests,
    )


def _state_of(
    name: str, report: ViewReport | None, orders: ViewOrders, hold: Held | None, *, runs: bool
) -> tuple[str, str, str]:
    """Return state, reason and remedy."""
    # A hold and a pause are in force from their order on, before the applier tells that it obeys.
    if hold is not None:
        return ViewState.HELD, hold.reason, "penstock resume"
    if orders.paused:
        reason = f": {orders.reason}" if orders.reason else ""
        return ViewState.PAUSED, f"by {orders.by}{reason}", f"penstock view resume {name}"
    if not runs:
        return STOPPED, "its applier does not run", "penstock run starts it"
    if report is None or report.state in (ViewState.HELD, ViewState.PAUSED):
        return STARTING, "", ""
    return report.state, report.reason, report.remedy
