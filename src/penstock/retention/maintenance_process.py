"""Starts maintenance in a child process; this module loads none of the code of maintenance."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

from penstock.errors import OperationalError

MODULE: Final = "penstock.retention.maintenance"


def in_child(work: bytes, nice: int) -> bytes:
    """Run maintenance in a child process of low priority, and wait for it.

    Args:
        work: The result of `maintenance.encode_work`.
        nice: The niceness, as `history.nice`; a process with a higher niceness keeps it.

    Returns:
        An encoded `MaintenanceReport`.

    Raises:
        OperationalError: The process died; the next run continues its work.
    """
    with subprocess.Popen(  # noqa: S603 -- a module of ours
        [sys.executable, "-m", MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        with suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, process.pid, nice)
        done, _ = process.communicate(work)
    if process.returncode or not done:
        raise OperationalError(
            f"maintenance died with exit code {process.returncode}; it is tried again"
        )
    return done
