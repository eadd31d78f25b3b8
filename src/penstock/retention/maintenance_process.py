"""Starts upkeep in a process of its own; whoever only starts it loads nothing of what it needs."""

import os
import subprocess
import sys
from contextlib import suppress
from typing import Final

from penstock.errors import OperationalError

MODULE: Final = "penstock.retention.maintenance"


def in_child(work: bytes, nice: int) -> bytes:
    """Let a process of its own do the work, at a priority from its first moment; wait for it.

    Args:
        work: What `upkeep.work_of` returned.
        nice: The priority, as `history.nice`; a process that has a lower one already keeps that.

    Returns:
        An encoded `upkeep.Done`.

    Raises:
        OperationalError: The process died; whatever it did counts, and the next one goes on.
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
            f"upkeep died with exit code {process.returncode}; it is tried again"
        )
    return done
