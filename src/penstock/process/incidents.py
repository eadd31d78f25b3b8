"""Incidents on disk: requests that stopped their epoch and were set aside, with the reason.

The driver appends one JSON line for each incident to `run/incidents.jsonl`. The journal holds the
outcome, with the incident's id; only the reason, which names files and lines, stays in this file.
"""

import secrets
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch, Lsn, RequestId
from penstock.files.layout import RUN
from penstock.log.api import Record
from penstock.log.clock import wall_clock_us
from penstock.process.line_file import LineFile

FILE_NAME: Final = "incidents.jsonl"
SHOWN_MAX: Final = 100
"""The most incidents that `newest` returns."""

_CAUSE_MAX: Final = 16_000


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
        self._file = LineFile(data / RUN / FILE_NAME, Incident, "incidents")

    def add(self, incident: Incident) -> None:
        """Append an incident; if the disk does not take it, the driver's log output has it as well."""
        self._file.append(incident)

    def newest(self, count: int = SHOWN_MAX) -> list[Incident]:
        """Return the newest incidents, the newest first."""
        return list(islice(self._file.newest(), count))
