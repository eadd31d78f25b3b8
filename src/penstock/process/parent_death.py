"""Ending a process when its parent ends, in any way."""

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # only Linux has it


def end_with_parent(parent: int) -> None:
    """Let Linux kill this process when the thread that forked it ends; end now if that has happened.

    Args:
        parent: The process id of the parent before the fork.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
