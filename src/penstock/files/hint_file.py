"""Hints: small files by which a process tells others how it stands; nothing depends on them.

A reader sees the former content or the new one. A full disk leaves the former one, and a damaged file says nothing.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_hint(path: Path, value: object) -> None:
    """Replace a hint; on a full disk it stays as it was."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(msgspec.json.encode(value))
        written.replace(path)


def read_hint(path: Path, value_type: type[T]) -> T | None:
    """Return a hint; None without a readable one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=value_type)
    except (OSError, msgspec.MsgspecError):
        return None
