"""Linux's choice of the process to kill when memory runs out."""

from contextlib import suppress
from pathlib import Path
from typing import Final

_SCORE: Final = "500"
"""Added to the score of this process (0 to 1,000); Linux kills the process with the highest score."""


def offer_this_process() -> None:
    """Let Linux kill this process before others, because another process can start it again."""
    with suppress(OSError):  # not Linux, or not allowed
        Path("/proc/self/oom_score_adj").write_text(_SCORE)
