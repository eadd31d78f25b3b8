"""Reports of epochs on disk: written by the driver, for displays in other processes.

The driver appends one JSON line for each epoch to `run/epochs.jsonl`; at 8 MB that becomes
`epochs.jsonl.1`, whose predecessor is dropped. The journal holds the truth.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.files.layout import RUN
from penstock.process.epoch_report import EpochReport
from penstock.process.line_file import LineFile

FILE_NAME: Final = "epochs.jsonl"
BYTES_MAX: Final = 8 << 20


class ReportWriter:
    """Appends reports; for one process at a time. A runtime calls `take` after each commit."""

    def __init__(self, data: Path, bytes_max: int = BYTES_MAX) -> None:
        """Write below a data directory, in files of about `bytes_max` bytes."""
        self._file, self._older = _files(data)
        self._bytes_max = bytes_max

    def take(self, report: EpochReport) -> None:
        """Append a report."""
        rounded = {name: round(value, 3) for name, value in report.phases_ms.items()}
        size = self._file.append(msgspec.structs.replace(report, phases_ms=rounded))
        if size >= self._bytes_max:
            with suppress(OSError):  # the next report tries it again
                self._file.path.replace(self._older.path)


class ReportReader:
    """Reads the newest reports; a call costs as much as it returns, also with long files."""

    def __init__(self, data: Path) -> None:
        """Read below a data directory; it need not exist yet."""
        self._files = _files(data)

    def after(self, epoch: Epoch) -> list[EpochReport]:
        """Return the reports of later epochs that are still held, in order."""
        return self._wanted(lambda report: report.epoch > epoch)

    def since(self, time_us: int) -> list[EpochReport]:
        """Return the reports of epochs committed at a time or later, in order."""
        return self._wanted(lambda report: report.time_us >= time_us)

    def newest(self) -> EpochReport | None:
        """Return the newest report; None without reports."""
        return next(self._backwards(), None)

    def _wanted(self, wanted: Callable[[EpochReport], bool]) -> list[EpochReport]:
        """Read backwards while reports are wanted and epochs fall."""
        reports: list[EpochReport] = []
        for report in self._backwards():
            # They rise after a rotation that lets a file be read twice, or after a new journal was begun.
            if not wanted(report) or (reports and report.epoch >= reports[-1].epoch):
                break
            reports.append(report)
        reports.reverse()
        return reports

    def _backwards(self) -> Iterator[EpochReport]:
        for file in self._files:
            yield from file.newest()


def _files(data: Path) -> tuple[LineFile[EpochReport], LineFile[EpochReport]]:
    """Return the file that grows, and the one before it."""
    present, older = data / RUN / FILE_NAME, data / RUN / f"{FILE_NAME}.1"
    noun = "reports of epochs"
    return LineFile(present, EpochReport, noun), LineFile(older, EpochReport, noun)
