"""The files of captures in a data directory, by which processes know of each other's work.

A capture takes the changes of a database into a stream. `captures/NAME/report.json` is its report, a hint for people and for
displays. `captures/NAME/slot.json` is its note about the replication slot, durable before each step at the database that it
tells of. `captures/NAME/orders.json` has the orders of operators, as those of views. The position of the stream is in the state.
"""

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import Corrupt
from penstock.files import durable, shared_file
from penstock.files.hint_file import read_hint, write_hint
from penstock.files.layout import CAPTURES
from penstock.files.roots import shared_root
from penstock.files.sealed import seal, unseal

ROLE: Final = "capture"
"""The role of the process that takes changes; its presence has the detail `capture`."""

_REPORT: Final = "report.json"
_SLOT: Final = "slot.json"
_FIELD: Final = "slot"


class CaptureState(StrEnum):
    """The work of a capture.

    READING: It reads the whole tables. FOLLOWING: It takes each transaction. WAITING: The database or the log does not answer
    now, or the driver is behind; it tries again. REFUSED: Nothing is taken until an operator has followed the remedy. PAUSED: By
    an order. HELD: The directory is a copy.
    """

    READING = "reading"
    FOLLOWING = "following"
    WAITING = "waiting"
    REFUSED = "refused"
    PAUSED = "paused"
    HELD = "held"


class CaptureReport(msgspec.Struct, frozen=True):
    """The report of a capture.

    Attributes:
        name: The name of its stream.
        source: The kind of the database, such as `postgres`.
        source_lsn: The position of the newest transaction that is on the stream, as the database writes it; empty before the first.
        rows: The rows that were taken since the start of the process.
        atoms: The atoms since then.
        unfit: The rows since then that the record cannot hold.
        lag_bytes: How far the log of the database is ahead; None while it is not known.
        lag_s: How long ago the oldest transaction was committed that is not on the stream, as far as it is known; 0: there is none.
        retained_bytes: How much of its log the database keeps for the slot; None while it is not known.
        slot: The name of the replication slot.
        reason: Why it does not follow, in a sentence without secrets; else empty.
        remedy: The next step of the operator; empty if waiting helps.
        time_us: When it was written, microseconds since the Unix epoch.
        ordered: The number of the last order to read the tables again that was carried out.
        untaken: The columns that no field takes, as `public.users.notes`.
    """

    name: str
    source: str
    state: CaptureState
    source_lsn: str = ""
    rows: int = 0
    atoms: int = 0
    unfit: int = 0
    lag_bytes: int | None = None
    lag_s: float = 0.0
    retained_bytes: int | None = None
    slot: str = ""
    reason: str = ""
    remedy: str = ""
    time_us: int = 0
    pid: int = 0
    ordered: int = 0
    untaken: tuple[str, ...] = ()


class SlotNote(msgspec.Struct, frozen=True):
    """What this directory has done with a replication slot.

    Attributes:
        system: The identity of the database server.
        slot: The name of the slot.
        generation: The number of the reading of the tables for which the slot was made.
        confirmed: The position up to which the database may forget its log.
        tables: The tables that were read.
        ordered: The number of the last order to read the tables again that was carried out.
        timeline: The timeline of the server: it has another one after a standby was promoted, or a backup restored; 0 in notes of an
            earlier Penstock.
    """

    system: str
    slot: str
    generation: int
    confirmed: int = 0
    tables: tuple[str, ...] = ()
    ordered: int = 0
    timeline: int = 0


def folder_of(data: Path, name: str) -> Path:
    """Return the folder of a capture, which may not exist."""
    return data / CAPTURES / name


def write_capture_report(data: Path, report: CaptureReport) -> None:
    """Replace the report of a capture; on a full disk it stays as it was."""
    write_hint(folder_of(data, report.name) / _REPORT, report)


def read_capture_report(data: Path, name: str) -> CaptureReport | None:
    """Return the newest report of a capture; None without a readable report."""
    return read_hint(folder_of(data, name) / _REPORT, CaptureReport)


def read_slot_note(data: Path, name: str) -> SlotNote | None:
    """Return the note about the slot of a capture; None before the first.

    Raises:
        Corrupt: The file is damaged; the message names it.
    """
    return shared_file.read(shared_root(data), f"{CAPTURES}/{name}/{_SLOT}", _note_in)


def write_slot_note(data: Path, name: str, note: SlotNote) -> None:
    """Replace the note about the slot of a capture, durably."""
    root, path = shared_root(data), f"{CAPTURES}/{name}/{_SLOT}"
    with durable.storage(f"write {root}/{path}"):
        root.replace(path, seal(_FIELD, note))


def _note_in(content: bytes | None) -> SlotNote | None:
    try:
        return None if content is None else unseal(_FIELD, content, SlotNote)
    except ValueError as error:
        raise Corrupt(
            f"the content {error}; remove the file, and order penstock capture snapshot"
        ) from error
