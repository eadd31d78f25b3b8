"""Starts maintenance in a child process, without loading the modules that it needs."""

from typing import Final

from penstock.errors import OperationalError
from penstock.process.question import run_child

MODULE: Final = "penstock.retention.maintenance"


def run_maintenance(work: bytes, nice: int) -> bytes:
    """Do maintenance in a child process of low priority, and wait for it.

    Args:
        work: The task, from `maintenance.encode_work`.
        nice: The priority, as `history.nice`; a process with a lower priority keeps it.
    """
    done, exit_code = run_child([MODULE], work, None, nice=nice)
    if exit_code or not done:
        raise OperationalError(f"maintenance died with exit code {exit_code}; it is tried again")
    return done
