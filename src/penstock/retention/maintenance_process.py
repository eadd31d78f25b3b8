"""Starts maintenance in a child process, without loading the modules that it needs."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

from penstock.errors import OperationalError

MODULE: Final = "penstock.retention.maintenance"


def run_maintenance(work: bytes, nice: int) -> bytes:
    """Do maintenance in a child process of low priority, and wait for it.

    Args:
        work: The task, from `maintenance.encode_work`.
        nice: The priority, as `history.nice`; a process with a lower priority keeps it.

    Returns:
        An encoded `MaintenanceReport`.

    Raises:
        OperationalError: The process died; its work until then counts, and the next run goes on.
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
