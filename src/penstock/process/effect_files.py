"""The files of effects in a data directory: the report of the effect process, its queue, and the lineage of the data.

The report is a hint for people and displays. The rows of effects are state, and the queue is a cache of this host.
"""

import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.files import durable
from penstock.files.layout import LINEAGE, RUN
from penstock.files.roots import shared_root

ROLE: Final = "effects"
"""The role of the process that calls effects."""

_FOLDER: Final = "effects"

_REPORT: Final = "effects.json"
"""Not `effects-….json`: `process.presence` removes such files if no process has announced itself so."""


class EffectCounts(msgspec.Struct, frozen=True):
    """The effects of one function, as the effect process counts them.

    Attributes:
        waiting: Those that are not called at this moment.
        running: Those that are called.
        dead: Those that have failed for good, and wait for an operator.
        calls, failures, outcomes: How many calls have begun, how many have failed, and how many effects have ended, since the start
            of the process.
    """

    function: str
    waiting: int = 0
    running: int = 0
    dead: int = 0
    calls: int = 0
    failures: int = 0
    outcomes: int = 0


class EffectsReport(msgspec.Struct, frozen=True):
    """The report of the effect process.

    Attributes:
        state: `following`, `filling`, `held` or `waiting`.
        epoch: The epoch that its queue has reached.
        reason: Why it calls nothing, or why an effect cannot be called; else empty.
        remedy: The next step of the operator; empty if waiting helps.
        time_us: When it was written, microseconds since the Unix epoch.
    """

    state: str
    epoch: Epoch = BEFORE_FIRST
    reason: str = ""
    remedy: str = ""
    time_us: int = 0
    pid: int = 0
    functions: tuple[EffectCounts, ...] = ()


def queue_of(data: Path) -> Path:
    """Return the file of the queue, which may not exist."""
    return data / _FOLDER / "queue.sqlite"


def lock_of(data: Path) -> Path:
    """Return the file whose lock the effect process holds."""
    return data / _FOLDER / "lock"


def write_effects_report(data: Path, report: EffectsReport) -> None:
    """Replace the report; on a full disk it stays as it was."""
    path = data / RUN / _REPORT
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(report))
        written.replace(path)


def read_effects_report(data: Path) -> EffectsReport | None:
    """Return the newest report; None if no effect process has told of any."""
    try:
        return msgspec.json.decode((data / RUN / _REPORT).read_bytes(), type=EffectsReport)
    except (OSError, msgspec.DecodeError):
        return None


def lineage_of(data: Path, secret: bytes) -> bytes:
    """Return the lineage of a data directory, on which `effect_id()` depends: a restored one keeps it, a fork has another.

    Args:
        secret: The secret of the journal; the lineage of a directory that was never forked.
    """
    root = shared_root(data)
    return root.get(LINEAGE) if root.has(LINEAGE) else secret


def begin_lineage(data: Path) -> None:
    """Give a fork a lineage of its own, durably."""
    durable.replace(data / LINEAGE, secrets.token_bytes(32))
