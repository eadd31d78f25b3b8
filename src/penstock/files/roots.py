"""The two roots of a data directory: the folder of this host, and the shared root.

A data directory is a folder. Its shared root is the same folder, unless a file in it, `shared-root.json`, names a place
in an object store. So each process that is given the folder finds both roots, and needs no other setting. The file is written
before anything else is (`use_store`), and never changes.
"""

import hashlib
import os
import re
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import ConfigError, Corrupt
from penstock.files import durable, private
from penstock.files.layout import JOURNAL, LOG, SHARED_ROOT, SNAPSHOTS, STATE
from penstock.files.local_root import LocalRoot
from penstock.files.looks import FAR_PAUSE_S
from penstock.files.shared_root import SCHEME, SharedRoot

_OWN: Final = frozenset({JOURNAL, LOG, STATE})
"""A folder with one of these names has data already."""
_NAME_MAX: Final = 60


class _Shared(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        url: The place in an object store.
    """

    url: str


def store_of(data: Path) -> str:
    """Return the place in an object store that is the shared root of a data directory; empty if it is the directory.

    Raises:
        ConfigError: The data directory is the URL of a place.
        Corrupt: The file that names it is damaged.
    """
    try:
        with open(f"{data}{os.sep}{SHARED_ROOT}", "rb", buffering=0) as file:  # noqa: PTH123 -- see `LocalRoot.get`
            content = file.readall()
    except (FileNotFoundError, NotADirectoryError):
        if str(data).startswith(SCHEME.removesuffix("/")):  # a path loses a slash of a URL
            raise ConfigError(
                f"{data} is no folder; name the folder of this host for that place: the setting host_data, or a folder in "
                "~/.local/share/penstock"
            ) from None
        return ""
    try:
        return msgspec.json.decode(content, type=_Shared).url
    except msgspec.MsgspecError as error:
        raise Corrupt(
            f"{data / SHARED_ROOT} cannot be read: {error}; it names the object store of the application; remove the "
            "file, and give the place as --data"
        ) from error


def shared_root(data: Path) -> SharedRoot:
    """Return the shared root of a data directory; raises as `store_of`."""
    url = store_of(data)
    if not url:
        return LocalRoot(data)
    from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

    return StoreRoot(url, data)


def look_pause_s(data: Path, near_s: float) -> float:
    """Return the pause between two looks at a small name that hardly ever changes: in a store each look is paid for."""
    return max(near_s, FAR_PAUSE_S) if store_of(data) else near_s


def journal_root(data: Path) -> SharedRoot:
    """Return the root of the journal of a data directory; raises as `store_of`."""
    return shared_root(data).folder(JOURNAL)


def snapshots_root(data: Path) -> SharedRoot:
    """Return the root of the snapshots of a data directory; raises as `store_of`."""
    return shared_root(data).folder(SNAPSHOTS)


def root_at(place: str, host: Path) -> SharedRoot:
    """Return the root at a place: a folder, or `s3://BUCKET/PREFIX`.

    Args:
        host: A folder of this host for files on their way to a store.

    Raises:
        ConfigError: The URL names no place in a store.
    """
    if not place.startswith(SCHEME):
        return LocalRoot(Path(place))
    from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

    return StoreRoot(place, host)


def has_journal(data: Path) -> bool:
    """Say whether an application has begun a journal in the shared root of a data directory.

    Raises:
        ConfigError: The object store cannot be used.
    """
    return next(shared_root(data).names(JOURNAL), None) is not None


def host_folder(url: str, base: Path) -> Path:
    """Return the folder of a host for the data of an application whose shared root is in a store.

    Args:
        base: The folder of such folders.
    """
    # A word for people, and a hash, because different places may give the same word.
    word = re.sub(r"[^A-Za-z0-9.]+", "-", url.removeprefix(SCHEME)).strip("-.")[:_NAME_MAX]
    return base / f"{word}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def check_store(data: Path) -> None:
    """Try whether an object store can be the shared root of a running application; nothing if the root is a folder.

    Raises:
        ConfigError: It cannot; the message has the remedy.
    """
    root = shared_root(data)
    if root.is_far:
        from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

        assert isinstance(root, StoreRoot), "all others are near"
        root.check_conditions()


def check_forgets(data: Path) -> None:
    """Refuse an object store that keeps replaced bytes, as the shared root of personal data; nothing if it is a folder.

    Raises:
        ConfigError: The bucket keeps former versions, or the store does not answer.
    """
    root = shared_root(data)
    if root.is_far:
        from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

        assert isinstance(root, StoreRoot), "all others are near"
        root.check_forgets()


def use_store(data: Path, url: str) -> None:
    """Let a place in an object store be the shared root of a folder, durably.

    Raises:
        ConfigError: The folder has other data, or another place; or the store cannot be used.
    """
    from penstock.files.store_root import StoreRoot  # noqa: PLC0415 -- only for data in a store

    wanted = StoreRoot(url, data)
    wanted.check_access()
    present = store_of(data)
    if present == str(wanted):
        return
    if present or any((data / name).exists() for name in _OWN):
        raise ConfigError(
            f"{data} has the data of {present or 'an application without an object store'}, and not of {wanted}; name "
            "another folder with the setting host_data"
        )
    private.create(data)
    name_store(data, str(wanted))


def name_store(data: Path, url: str) -> None:
    """Write the file that names the shared root of a folder, durably."""
    with durable.storage(f"write {data / SHARED_ROOT}"):
        durable.replace(data / SHARED_ROOT, msgspec.json.encode(_Shared(url)))
