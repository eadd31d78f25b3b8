"""The files of views in a data directory, by which processes know of each other's work.

`views/NAME/report.json` is the report of the applier of a view: its state, with reason and remedy. It is a hint for people
and for displays; the position of a view is in its target. `views/NAME/orders.json` has the orders of operators: that the view is paused, or filled again. It is durable, and changes under a lock. `held.json` says that the directory is a copy,
so that its appliers must not write into targets that belong to the original. `views/NAME/gaps.json` has the gaps in tables of streams.
"""

import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.files import durable, shared_file
from penstock.files.hint_file import read_hint, write_hint
from penstock.files.layout import HELD, VIEWS
from penstock.files.roots import shared_root, store_of
from penstock.files.sealed import seal, unseal

ROLE: Final = "applier"
"""The role of the process that feeds a view; its presence has the detail `view`."""

T = TypeVar("T")

_REPORT: Final = "report.json"
_ORDERS: Final = "orders.json"
_GAPS: Final = "gaps.json"
_FIELD: Final = "orders"
_HELD_FIELD: Final = "held"
_GAPS_FIELD: Final = "gaps"


class ViewState(StrEnum):
    """The work of an applier with its view.

    FILLING: The tables are filled for the first time, or again. FOLLOWING: It takes each epoch. WAITING: The target
    cannot be written now; the applier tries it again. REFUSED: The target is not written until an operator has
    followed the remedy. PAUSED: By an order. HELD: The directory is a copy; see `Held`.
    """

    FILLING = "filling"
    FOLLOWING = "following"
    WAITING = "waiting"
    REFUSED = "refused"
    PAUSED = "paused"
    HELD = "held"


class ViewReport(msgspec.Struct, frozen=True):
    """The report of an applier about its view.

    Attributes:
        name: The name of the view.
        target: The kind of its target, such as `postgres`.
        epoch: The last epoch that the tables show; -1 before the first.
        failed: The number of rows that are absent because their row function has failed.
        reason: Why the state is not `following`, or which work is left, in a sentence without secrets; else empty.
        remedy: The next step of the operator; empty if waiting helps.
        time_us: When it was written, microseconds since the Unix epoch.
        pid: The process of the applier.
        filled: The part of a fill that is done, from 0 to 1; None if the view is not being filled.
        rebuilt: The number of the last order to rebuild that was carried out.
        schema: The schema of PostgreSQL that the application names; empty: that with the name of the view.
        personal: Whether it may show personal data.
        passed: The hash of the newest certificate of an erasure that it has passed, and with it all before; empty: none.
        streams: Whether it shows streams.
        asked_ms: How long the last questions of its SQL tables took, in milliseconds; None if it has none, or before the first.
        rests: Whether they take so long that the view waits longer than `every`, by `view.tables_percent`.
    """

    name: str
    target: str
    state: ViewState
    epoch: Epoch = BEFORE_FIRST
    failed: int = 0
    reason: str = ""
    remedy: str = ""
    time_us: int = 0
    pid: int = 0
    filled: float | None = None
    rebuilt: int = 0
    schema: str = ""
    personal: bool = False
    passed: str = ""
    streams: bool = False
    asked_ms: float | None = None
    rests: bool = False


class ViewOrders(msgspec.Struct, frozen=True):
    """The orders of operators about a view.

    Attributes:
        by: The user or the principal of the newest order; empty before the first.
        time_us: The time of the newest order, microseconds since the Unix epoch.
        rebuild: The number of the newest order to rebuild; the applier carries it out if its report's `rebuilt` is smaller.
    """

    paused: bool = False
    by: str = ""
    reason: str = ""
    time_us: int = 0
    rebuild: int = 0


class Held(msgspec.Struct, frozen=True):
    """The hold of a restored or forked directory: its appliers write nothing until `penstock resume`.

    Attributes:
        reason: The origin of the directory: `restored from …`.
        time_us: When, microseconds since the Unix epoch.
    """

    reason: str
    time_us: int


class Gap(msgspec.Struct, frozen=True):
    """The events that the table of a stream lacks, because the journal has forgotten them.

    Attributes:
        table: The table, which has the name of the stream.
        atom: The first atom that the table may have; those before it are absent.
        shown: The last epoch that the view had shown before.
        first: The first epoch that the journal held then.
    """

    table: str
    atom: int
    shown: Epoch
    first: Epoch

    @property
    def text(self) -> str:
        """The gap in a sentence."""
        absent = f"events of {self.table} before atom {self.atom} are absent"
        if self.shown + 1 < self.first:
            lost = f"epochs {self.shown + 1} to {self.first - 1}"
            return f"{absent}: the journal forgot {lost} before the view had shown them"
        return (
            f"{absent}: the table was filled again when the journal began with epoch {self.first}"
        )


def folder_of(data: Path, name: str) -> Path:
    """Return the folder of a view, which may not exist."""
    return data / VIEWS / name


def known_views(data: Path) -> set[str]:
    """Return the views that have files, here or in the shared root."""
    here = {path.name for path in (data / VIEWS).glob("*") if path.is_dir()}
    return here | set(shared_root(data).names(VIEWS)) if store_of(data) else here


def forget_view(data: Path, name: str) -> None:
    """Remove all files of a view: those of this host, and its orders and gaps."""
    with durable.storage(f"remove the files of view {name}"):
        root = shared_root(data)
        for file in (_ORDERS, _GAPS):
            root.remove(_name_of(name, file))
        folder = folder_of(data, name)
        if folder.exists():  # else its applier ran on another host
            shutil.rmtree(folder)


def write_report(data: Path, report: ViewReport) -> None:
    """Replace the report of a view; on a full disk it stays as it was."""
    write_hint(folder_of(data, report.name) / _REPORT, report)


def read_report(data: Path, name: str) -> ViewReport | None:
    """Return the newest report of a view; None without a readable report."""
    return read_hint(folder_of(data, name) / _REPORT, ViewReport)


def read_reports(data: Path) -> list[ViewReport]:
    """Return the newest report of each view, in the order of their names."""
    reports = (read_report(data, path.parent.name) for path in (data / VIEWS).glob(f"*/{_REPORT}"))
    return sorted(
        (report for report in reports if report is not None), key=lambda report: report.name
    )


def read_orders(data: Path, name: str, place: str = VIEWS) -> ViewOrders:
    """Return the orders of operators about a view.

    Args:
        place: The folder of the folders; that of captures has orders about them, in the same form.

    Raises:
        Corrupt: The file is damaged; the message names it.
    """
    return shared_file.read(shared_root(data), f"{place}/{name}/{_ORDERS}", _orders_in)


def change_orders(
    data: Path, name: str, change: Callable[[ViewOrders], ViewOrders], place: str = VIEWS
) -> ViewOrders:
    """Change the orders of a view durably, as their only writer, and return them; raises as `read_orders`."""

    def edit(orders: ViewOrders) -> tuple[bytes, ViewOrders]:
        changed = change(orders)
        return seal(_FIELD, changed), changed

    return shared_file.change(data, f"{place}/{name}/{_ORDERS}", _orders_in, edit)


def read_gaps(data: Path, name: str) -> list[Gap]:
    """Return the gaps in the tables of a view; raises as `read_orders`."""
    return (
        shared_file.read(shared_root(data), _name_of(name, _GAPS), _decoder(_GAPS_FIELD, list[Gap]))
        or []
    )


def write_gaps(data: Path, name: str, gaps: list[Gap]) -> None:
    """Note the gaps in the tables of a view durably."""
    root, path = shared_root(data), _name_of(name, _GAPS)
    with durable.storage(f"write {root}/{path}"):
        root.replace(path, seal(_GAPS_FIELD, gaps))


def held(data: Path) -> Held | None:
    """Return the hold of a data directory; None if it has none.

    Raises:
        Corrupt: The file is damaged; the message names it.
    """
    return shared_file.read(shared_root(data), HELD, _decoder(_HELD_FIELD, Held))


def hold(data: Path, hold: Held) -> None:
    """Hold the views of a data directory, durably."""
    root = shared_root(data)
    with durable.storage(f"write {root}/{HELD}"):
        root.replace(HELD, seal(_HELD_FIELD, hold))
        root.count_change()


def end_hold(data: Path) -> None:
    """End the hold of a data directory durably, if it has one; also a hold whose file is damaged."""
    root = shared_root(data)
    with durable.storage(f"remove {root}/{HELD}"):
        root.remove(HELD)
        root.settle("")
        root.count_change()


def _name_of(view: str, file: str) -> str:
    return f"{VIEWS}/{view}/{file}"


def _decoder(name: str, value_type: type[T]) -> Callable[[bytes | None], T | None]:
    def decode(data: bytes | None) -> T | None:
        try:
            return None if data is None else unseal(name, data, value_type)
        except ValueError as error:
            raise Corrupt(
                f"the content {error}; remove the file, and give the order again"
            ) from error

    return decode


def _orders_in(content: bytes | None) -> ViewOrders:
    return _decoder(_FIELD, ViewOrders)(content) or ViewOrders()
