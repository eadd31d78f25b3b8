"""Reports of epochs on disk: written by the driver, for displays in other processes.

The driver appends one JSON line for each epoch to `run/epochs.jsonl`; at 8 MB that becomes
`epochs.jsonl.1`, whose predecessor is dropped. Nothing depends on these files: a report that cannot
be written is lost with a warning, and a torn line is skipped. The journal holds the truth.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.files.layout import RUN
from penstock.process.epoch_report import EpochReport

_log = logging.getLogger(__name__)

FILE_NAME: Final = "epochs.jsonl"
BYTES_MAX: Final = 8 << 20
_BLOCK: Final = 64 << 10


class ReportWriter:
    """Appends reports; for one process at a time. A runtime calls `take` after each commit."""

    def __init__(self, data: Path, bytes_max: int = BYTES_MAX) -> None:
        """Write below a data directory, in files of about `bytes_max` bytes."""
        self._path = data / RUN / FILE_NAME
        self._bytes_max = bytes_max
        self._failed = False

    def take(self, report: EpochReport) -> None:
        """Append a report; a disk that takes none costs the report and nothing else."""
        rounded = {name: round(value, 3) for name, value in report.phases_ms.items()}
        stored = msgspec.structs.replace(report, phases_ms=rounded)
        try:
            self._append(msgspec.json.encode(stored))
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.warning("reports of epochs are not written", extra={"cause": str(error)})
            self._failed = True

    def _append(self, line: bytes) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            # The newline in front parts the line from one that a crash or a full disk has torn.
            file.write(b"\n" + line + b"\n")
            size = file.tell()
        if size >= self._bytes_max:
            self._path.replace(_older(self._path))


class ReportReader:
    """Reads the newest reports; a call costs as much as it returns, also with long files."""

    def __init__(self, data: Path) -> None:
        """Read below a data directory; it need not exist yet."""
        self._path = data / RUN / FILE_NAME

    def after(self, epoch: Epoch) -> list[EpochReport]:
        """Return the reports of later epochs that are still held, in order."""
        return self._wanted(lambda report: report.epoch > epoch)

    def since(self, time_us: int) -> list[EpochReport]:
        """Return the reports of epochs committed at a time or later, in order."""
        return self._wanted(lambda report: report.time_us >= time_us)

    def newest(self) -> EpochReport | None:
        """Return the newest report; None without reports."""
        for line in self._lines():
            with contextlib.suppress(msgspec.DecodeError):
                return msgspec.json.decode(line, type=EpochReport)
        return None

    def _wanted(self, wanted: Callable[[EpochReport], bool]) -> list[EpochReport]:
        """Read backwards while reports are wanted and epochs fall.

        They rise after a rotation that lets a file be read twice, or after a new journal was begun.
        """
        reports: list[EpochReport] = []
        for line in self._lines():
            try:
                report = msgspec.json.decode(line, type=EpochReport)
            except msgspec.DecodeError:
                continue
            if not wanted(report) or (reports and report.epoch >= reports[-1].epoch):
                break
            reports.append(report)
        reports.reverse()
        return reports

    def _lines(self) -> Iterator[bytes]:
        yield from _backwards(self._path)
        yield from _backwards(_older(self._path))


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _backwards(path: Path) -> Iterator[bytes]:
    """Yield the complete lines of a file, the last one first."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        at = file.seek(0, os.SEEK_END)
        rest = b""  # begins in a block that is still to be read
        while at > 0:
            size = min(_BLOCK, at)
            at -= size
            file.seek(at)
            first, *lines = (file.read(size) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            rest = first
        if rest:
            yield rest
