"""Savepoints: names of epochs; an epoch with a name stays readable until its name is removed.

Each savepoint is a file `savepoints/NAME.json` in the data directory, which appears whole or not at
all and is never changed. A savepoint survives the loss of power. `leases` keeps its epoch and all
later ones from being removed.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files import durable
from penstock.files.layout import SAVEPOINTS

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")  # neither an epoch nor a time
_SUFFIX: Final = ".json"


class Savepoint(msgspec.Struct, frozen=True):
    """An epoch with a name.

    Attributes:
        name: Unique in its data directory.
        epoch: The epoch; the savepoint means the state after it.
        time_us: The time of its creation, microseconds since the Unix epoch.
    """

    name: str
    epoch: Epoch
    time_us: int
    note: str = ""


def create(data: Path, savepoint: Savepoint) -> None:
    """Make a savepoint, durably."""
    path = _path(data, savepoint.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.sync_directory(data)
        durable.publish(path, msgspec.json.encode(savepoint))
        durable.sync_directory(path.parent)
    except FileExistsError:
        taken = find(data, savepoint.name)
        raise ConfigError(
            f"savepoint {savepoint.name} exists already, at epoch {taken.epoch}; remove it, or "
            "choose another name"
        ) from None
    except OSError as error:
        raise OperationalError(f"cannot write {path}: {error.strerror}") from error


def every(data: Path) -> list[Savepoint]:
    """Return all savepoints, the oldest epoch first.

    Raises:
        Corrupt: A savepoint is damaged, so that its epoch is unknown.
    """
    return sorted(map(_read, paths(data)), key=lambda savepoint: (savepoint.epoch, savepoint.name))


def find(data: Path, name: str) -> Savepoint:
    """Return the savepoint of a name.

    Raises:
        ConfigError: It does not exist; the message names the existing ones.
        Corrupt: It is damaged.
    """
    path = _path(data, name)
    if not path.exists():
        there = ", ".join(path.stem for path in paths(data))
        raise ConfigError(f"{data} has no savepoint {name}; its savepoints: {there or 'none'}")
    return _read(path)


def remove(data: Path, name: str) -> None:
    """Forget a savepoint; epochs that only it kept may be removed from then on.

    Raises:
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
    files = (data / SAVEPOINTS).glob(f"*{_SUFFIX}")
    return sorted(path for path in files if is_name(path.stem))


def _path(data: Path, name: str) -> Path:
    if not is_name(name):
        raise ConfigError(
            f"{name!r} cannot name a savepoint: a name is a letter and then at most "
            "99 letters, digits, dots, dashes and underscores"
        )
    return data / SAVEPOINTS / f"{name}{_SUFFIX}"


def _read(path: Path) -> Savepoint:
    try:
        savepoint = msgspec.json.decode(path.read_bytes(), type=Savepoint)
    except FileNotFoundError:
        raise ConfigError(f"the savepoint {path.stem} was removed just now") from None
    except OSError as error:
        raise OperationalError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"savepoint {path} is damaged; put the file back from a backup, or remove it"
        ) from error
    if savepoint.name != path.stem or savepoint.epoch < 0:
        raise Corrupt(
            f"savepoint {path} says that it is {savepoint.name} at epoch {savepoint.epoch}"
        )
    return savepoint
