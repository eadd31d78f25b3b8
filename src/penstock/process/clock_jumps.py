"""Jumps of the machine's clock on disk: each process that uses the log notes those that it has seen.

A process that appends or moves due records appends one JSON line for each jump to `run/clock-jumps.jsonl`. Several
processes see the same jump, each at its next use of the log.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from penstock.files.layout import RUN
from penstock.log.clock import wall_clock_us
from penstock.process.line_file import LineFile

FILE_NAME: Final = "clock-jumps.jsonl"


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
        ahead_s: The seconds of the longest jump ahead; 0 without one.
    """

    count: int = 0
    newest: ClockJump | None = None
    ahead_s: int = 0

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
    """Append a jump."""
    _file(data).append(ClockJump(wall_clock_us(), seconds, os.getpid()))


def clock_jumps(data: Path) -> ClockJumps:
    """Return the jumps that were noted in a data directory."""
    jumps = list(_file(data).newest())
    ahead_s = max((jump.seconds for jump in jumps), default=0)
    return ClockJumps(len(jumps), jumps[0] if jumps else None, max(0, ahead_s))


def _file(data: Path) -> LineFile[ClockJump]:
    return LineFile(data / RUN / FILE_NAME, ClockJump, "jumps of the clock")
