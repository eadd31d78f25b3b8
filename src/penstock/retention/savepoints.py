"""Savepoints: names of epochs; an epoch with a name stays readable until its name is removed.

Each savepoint is a file `savepoints/NAME.json` in the shared root, which appears whole or not at
all and is never changed. A savepoint survives the loss of power. `leases` keeps its epoch and all
later ones from being removed.
"""

import re
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt, OperationalError
from penstock.files.layout import SAVEPOINTS
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot

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
    root, name = shared_root(data), _name_of(savepoint.name)
    try:
        root.make_folders(SAVEPOINTS)
        made = root.create(name, msgspec.json.encode(savepoint))
    except OSError as error:
        raise OperationalError(f"cannot write {root}/{name}: {error.strerror}") from error
    if not made:
        taken = find(data, savepoint.name)
        raise ConfigError(
            f"savepoint {savepoint.name} exists already, at epoch {taken.epoch}; remove it, or "
            "choose another name"
        )


def every(data: Path) -> list[Savepoint]:
    """Return all savepoints, the oldest epoch first.

    Raises:
        Corrupt: A savepoint is damaged, so that its epoch is unknown.
    """
    root = shared_root(data)
    stored = (_read(root, name) for name in names(data))
    return sorted(stored, key=lambda savepoint: (savepoint.epoch, savepoint.name))


def find(data: Path, name: str) -> Savepoint:
    """Return the savepoint of a name.

    Raises:
        ConfigError: It does not exist; the message names the existing ones.
        Corrupt: It is damaged.
    """
    known = names(data)
    _name_of(name)
    if name not in known:
        raise ConfigError(
            f"{data} has no savepoint {name}; its savepoints: {', '.join(known) or 'none'}"
        )
    return _read(shared_root(data), name)


def remove(data: Path, name: str) -> None:
    """Forget a savepoint; epochs that only it kept may be removed from then on.

    Raises:
        OperationalError: The disk fails.
    """
    find(data, name)
    root, path = shared_root(data), _name_of(name)
    try:
        root.remove(path)
        root.settle(SAVEPOINTS)
    except OSError as error:
        raise OperationalError(f"cannot remove {root}/{path}: {error.strerror}") from error


def is_name(text: str) -> bool:
    """Say whether a savepoint could have this name: it starts with a letter."""
    return _NAME.fullmatch(text) is not None


def names(data: Path) -> list[str]:
    """Return the names of all savepoints."""
    root = shared_root(data)
    try:
        files = [file for file in root.names(SAVEPOINTS) if file.endswith(_SUFFIX)]
    except OSError as error:
        raise OperationalError(f"cannot read {root}/{SAVEPOINTS}: {error.strerror}") from error
    return sorted(filter(is_name, (file.removesuffix(_SUFFIX) for file in files)))


def file_of(name: str) -> str:
    """Return the name of the file of a savepoint, in the shared root."""
    return f"{SAVEPOINTS}/{name}{_SUFFIX}"


def _name_of(name: str) -> str:
    if not is_name(name):
        raise ConfigError(
            f"{name!r} cannot name a savepoint: a name is a letter and then at most "
            "99 letters, digits, dots, dashes and underscores"
        )
    return file_of(name)


def _read(root: SharedRoot, name: str) -> Savepoint:
    path = file_of(name)
    try:
        savepoint = msgspec.json.decode(root.get(path), type=Savepoint)
    except FileNotFoundError:
        raise ConfigError(f"the savepoint {name} was removed just now") from None
    except OSError as error:
        raise OperationalError(f"cannot read {root}/{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"savepoint {root}/{path} is damaged; put the file back from a backup, or remove it"
        ) from error
    if savepoint.name != name or savepoint.epoch < 0:
        raise Corrupt(
            f"savepoint {root}/{path} says that it is {savepoint.name} at epoch {savepoint.epoch}"
        )
    return savepoint
