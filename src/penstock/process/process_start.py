"""The start of a process and of the machine, as texts that a change of the clock leaves alone.

A process id is given again after a process has ended. The id and the start together name one process. On Linux the
kernel counts the start of a process from the start of the machine. The time of day of that start is computed from the
present clock, so it moves when the clock is set, and must not be compared.
"""

from pathlib import Path
from typing import Final

import psutil

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_TICKS: Final = 19
"""The place of the start among the fields of `/proc/PID/stat` that follow the name of the program."""


def boot_id() -> str:
    """Return a text that changes when the machine restarts; empty if the system has no such text.

    It tells the crash of a process from the crash of the machine.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def start_of(pid: int) -> str:
    """Return a text that differs for each process that has, or had, this id.

    Raises:
        psutil.Error: No such process runs.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        # No such process, or a system without /proc, where the start is stored as a time.
        return repr(psutil.Process(pid).create_time())
    return f"{boot_id()}:{fields[_TICKS]}"
