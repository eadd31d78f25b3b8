"""Starts upkeep in a process of its own; whoever only starts it loads nothing of what it needs."""

import subprocess
import sys

from penstock.errors import OperationalError


def in_child(work: bytes) -> bytes:
    """Let a process of its own do the work, at the priority that the settings say; wait for it.

    Args:
        work: What `upkeep.work_of` returned.

    Returns:
        An encoded `upkeep.Done`.

    Raises:
        OperationalError: The process died; whatever it did counts, and the next one goes on.
    """
    done = subprocess.run(
        [sys.executable, "-m", "penstock.runtime.history.upkeep"],
        input=work,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode or not done.stdout:
        raise OperationalError(f"upkeep died with exit code {done.returncode}; it is tried again")
    return done.stdout
