"""Savepoints: names that somebody gave to epochs, and that keep them readable for ever.

Each is a file of its own, `savepoints/NAME.json` in the data directory, which appears whole or not
at all and is never changed. Promises that a savepoint that was made survives the loss of power.
Leaves to `holds` that nothing from its epoch on is removed.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files import durable

FOLDER: Final = "savepoints"
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")  # neither an epoch nor a time
_SUFFIX: Final = ".json"


class Savepoint(msgspec.Struct, frozen=True):
    """An epoch with a name.

    Attributes:
        name: Unique in its data directory.
        epoch: What it stands for: the state after this epoch.
        time_us: When it was made, microseconds since the Unix epoch.
        note: What whoever made it wanted to be remembered.
    """

    name: str
    epoch: Epoch
    time_us: int
    note: str = ""


def create(data: Path, savepoint: Savepoint) -> None:
    """Make a savepoint, durably.

    Raises:
        ConfigError: The name is taken, or is none.
        OperationalError: The disk is full or fails; there is no new savepoint.
    """
    path = _path(data, savepoint.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.sync_directory(data)
        durable.publish(path, msgspec.json.encode(savepoint))
        durable.sync_directory(path.parent)
    except FileExistsError:
        taken = find(data, savepoint.name)
        raise ConfigError(
            f"there is a savepoint {savepoint.name} already, at epoch {taken.epoch}; remove it, or "
            "choose another name"
        ) from None
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error


def every(data: Path) -> list[Savepoint]:
    """Return all savepoints, the oldest epoch first.

    Raises:
        Corrupt: One is damaged, so that nobody knows what it holds.
    """
    return sorted(map(_read, paths(data)), key=lambda one: (one.epoch, one.name))


def find(data: Path, name: str) -> Savepoint:
    """Return the savepoint of a name.

    Raises:
        ConfigError: There is none; names those that there are.
        Corrupt: It is damaged.
    """
    path = _path(data, name)
    if not path.exists():
        there = ", ".join(one.stem for one in paths(data))
        raise ConfigError(f"there is no savepoint {name} in {data}; it has {there or 'none'}")
    return _read(path)


def remove(data: Path, name: str) -> None:
    """Forget a savepoint; what only it held may be removed from then on.

    Raises:
        ConfigError: There is none.
        OperationalError: The disk fails.
    """
    find(data, name)
    path = _path(data, name)
    try:
        path.unlink(missing_ok=True)
        durable.sync_directory(path.parent)
    except OSError as error:
        raise OperationalError(f"cannot remove {path}: {error.strerror}") from error


def is_name(text: str) -> bool:
    """Say whether a savepoint could have this name: it starts with a letter."""
    return _NAME.fullmatch(text) is not None


def paths(data: Path) -> list[Path]:
    """Return the files of all savepoints, by name."""
    found = (data / FOLDER).glob(f"*{_SUFFIX}")
    return sorted(path for path in found if is_name(path.stem))


def _path(data: Path, name: str) -> Path:
    if not is_name(name):
        raise ConfigError(
            f"{name!r} is no name for a savepoint: it starts with a letter and goes on with at most "
            "99 letters, digits, dots, dashes and underscores"
        )
    return data / FOLDER / f"{name}{_SUFFIX}"


def _read(path: Path) -> Savepoint:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Savepoint)
    except FileNotFoundError:
        raise ConfigError(f"the savepoint {path.stem} was removed just now") from None
    except OSError as error:
        raise OperationalError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"savepoint {path} is damaged; put the file back from a backup, or remove it"
        ) from error
    if found.name != path.stem or found.epoch < 0:
        raise Corrupt(f"savepoint {path} says that it is {found.name} at epoch {found.epoch}")
    return found
