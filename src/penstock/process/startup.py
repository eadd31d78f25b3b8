"""The step that a starting process has reached: it writes the step, and other processes display it.

The step is a short text in `run/<role>.starting`. Like presence, the file is a hint for people,
and it is ignored when its process has ended.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.files.layout import RUN


class _Start(msgspec.Struct, frozen=True):
    """A process that starts."""

    pid: int
    step: str


def note(data: Path, role: str, step: str) -> None:
    """Say which step this process has reached; a disk that takes no file costs the hint alone."""
    path = _path(data, role)
    draft = path.with_suffix(f".starting-{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(_Start(os.getpid(), step)))
        draft.replace(path)


def finish(data: Path, role: str) -> None:
    """Say that the start of this process is over, whether it runs or has failed."""
    _path(data, role).unlink(missing_ok=True)


def step_of(data: Path, role: str) -> str | None:
    """Return the step that a starting process of a role has reached; None if no process starts."""
    try:
        start = msgspec.json.decode(_path(data, role).read_bytes(), type=_Start)
        os.kill(start.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return start.step


def _path(data: Path, role: str) -> Path:
    return data / RUN / f"{role}.starting"
