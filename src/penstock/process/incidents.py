"""Incidents on disk: requests that stopped their epoch and were set aside, with the reason.

The driver appends one JSON line for each incident to `run/incidents.jsonl`. The journal holds the
outcome, with the incident's id; only the reason, which names files and lines, stays in this file.
Nothing depends on it: where it cannot be written, the driver's log has the same.
"""

import logging
import secrets
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.files.layout import RUN
from penstock.log.api import Record
from penstock.log.clock import wall_clock_us

_log = logging.getLogger(__name__)

FILE_NAME: Final = "incidents.jsonl"
SHOWN_MAX: Final = 100
"""The most incidents that `newest` returns."""

_CAUSE_MAX: Final = 16_000
_READ_MAX: Final = 4 << 20


class Incident(msgspec.Struct, frozen=True):
    """A request that was set aside.

    Attributes:
        incident: Its id, which the reply names.
        time_us: When it was set aside, microseconds since the Unix epoch.
        epoch: The epoch that holds the outcome.
        lsn: The position of the request in the log.
        cause: The error that stopped the epoch, with its traceback if there is a traceback.
    """

    incident: str
    time_us: int
    epoch: Epoch
    lsn: Lsn
    request_id: RequestId
    cause: str


def incident_of(epoch: Epoch, record: Record, error: Exception) -> Incident:
    """Return a new incident with an id of its own."""
    cause = f"{type(error).__name__}: {error}"
    return Incident(
        incident=secrets.token_hex(6),
        time_us=wall_clock_us(),
        epoch=epoch,
        lsn=record.lsn,
        request_id=record.request_id,
        cause=cause if len(cause) <= _CAUSE_MAX else f"… {cause[-_CAUSE_MAX:]}",
    )


class IncidentLog:
    """The incidents of one data directory."""

    def __init__(self, data: Path) -> None:
        """Use a data directory, which need not exist yet."""
        self._path = data / RUN / FILE_NAME

    def add(self, incident: Incident) -> None:
        """Append an incident; a disk that takes none costs the line, which the log has as well."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                # The newline in front parts the line from one that a crash has torn.
                file.write(b"\n" + msgspec.json.encode(incident) + b"\n")
        except OSError as error:
            _log.warning("an incident is not written", extra={"cause": str(error)})

    def newest(self, count: int = SHOWN_MAX) -> list[Incident]:
        """Return the newest incidents, the newest first; a torn line is passed over."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, self._path.stat().st_size - _READ_MAX))
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        incidents: list[Incident] = []
        for line in reversed(lines):
            if len(incidents) == count:
                break
            try:
                incidents.append(msgspec.json.decode(line, type=Incident))
            except msgspec.MsgspecError:
                continue
        return incidents
