"""Jumps of the machine's clock on disk: each process that uses the log notes those that it has seen.

A process that appends or moves due records appends one JSON line for each jump to `run/clock-jumps.jsonl`. Several
processes see the same jump, each at its next use of the log. Nothing depends on the file: where it cannot be
written, the process's log output has the same.
"""

import logging
import os
from pathlib import Path
from typing import Final

import msgspec

from penstock.files.layout import RUN
from penstock.log.clock import wall_clock_us

_log = logging.getLogger(__name__)

FILE_NAME: Final = "clock-jumps.jsonl"
_READ_MAX: Final = 1 << 20


class ClockJump(msgspec.Struct, frozen=True):
    """A jump as one process has seen it.

    Attributes:
        time_us: The machine's time after the jump, microseconds since the Unix epoch.
        seconds: How far the clock went; negative if it was set back.
    """

    time_us: int
    seconds: int
    pid: int


class ClockJumps(msgspec.Struct, frozen=True):
    """The jumps of an application's machine.

    Attributes:
        count: How many were noted; each process counts for itself.
        newest: The last one that was noted; None without one.
    """

    count: int = 0
    newest: ClockJump | None = None

    def __str__(self) -> str:
        if self.newest is None:
            return "the machine's clock did not jump"
        way = "ahead" if self.newest.seconds > 0 else "back"
        times = "once" if self.count == 1 else f"{self.count:,} times"
        return (
            f"a jump of the machine's clock was noted {times}; the last one went {abs(self.newest.seconds):,} s {way}, and "
            "stored times keep it: see that the clock is right"
        )


def note_jump(data: Path, seconds: int) -> None:
    """Append a jump; a disk that takes none costs the line."""
    path = data / RUN / FILE_NAME
    jump = ClockJump(wall_clock_us(), seconds, os.getpid())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(jump) + b"\n")
    except OSError as error:
        _log.warning("a jump of the clock is not written", extra={"cause": str(error)})


def clock_jumps(data: Path) -> ClockJumps:
    """Return the jumps that were noted in a data directory; a torn line is passed over."""
    path = data / RUN / FILE_NAME
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _READ_MAX))
            lines = file.read().splitlines()
    except OSError:
        return ClockJumps()
    jumps: list[ClockJump] = []
    for line in lines:
        try:
            jumps.append(msgspec.json.decode(line, type=ClockJump))
        except msgspec.MsgspecError:
            continue
    return ClockJumps(len(jumps), jumps[-1] if jumps else None)
