"""The port of the shared root: the names of an application that all its hosts see, each with bytes.

The journal lies here, and all data that come back after the loss of a host. The locks, sockets, stores and scratch files of
a host lie in its host root, an ordinary folder; `files.layout` says which name belongs to which root. This
module defines the port. `local_root` keeps the names as files, and then both roots are one folder; `store_root` keeps
them in an object store.

A name is a path with slashes, relative to the root. Bytes appear whole or not at all. When a method returns, its effect
is durable. All methods raise `OSError` if the disk or the store fails; callers translate it with `files.durable.storage`.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from penstock.errors import ConfigError
from penstock.files.bell import Bell
from penstock.files.lease_mark import LeaseMark

SCHEME: Final = "s3://"
"""How the name of a place in an object store begins."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
_FOLDER: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._=-]{1,200}")
"""Stores and their clients differ in the other characters."""


_is_patient = False


def be_patient() -> None:
    """Let this process, and its later forks, wait longer for a far root that does not answer.

    For a process that tells nobody of a failure, and whose start takes longer than a short failure of a network.
    """
    global _is_patient
    _is_patient = True


def is_patient() -> bool:
    """Say whether this process waits longer."""
    return _is_patient


class UnclearOutcome(OSError):
    """It is not known whether a name was created: it may appear later, or be there already.

    The same call with the same bytes finds out.
    """


class Found(msgspec.Struct, frozen=True):
    """The bytes of a name, and their tag; both are None if the name does not exist."""

    data: bytes | None
    tag: str | None


class SharedRoot(Protocol):
    """Names with bytes, which several processes and hosts share; `str` of it is for people.

    Attributes:
        answers_prove: Whether bytes that were written stay for good. Any program may change a folder on a disk, so a
            commit looks at its parts again; an object store answers for itself.
        may_tear: Whether a loss of power may leave a part of a file under its name.
        keeps_s: A useless name stays for at least this number of seconds. A process that was
            stopped may still read it, or take it for free and create it again.
        is_far: Whether each call waits for a network. An event loop must not make it.
    """

    @property
    def answers_prove(self) -> bool: ...  # noqa: D102 -- above

    @property
    def may_tear(self) -> bool: ...  # noqa: D102

    @property
    def keeps_s(self) -> int: ...  # noqa: D102

    @property
    def is_far(self) -> bool: ...  # noqa: D102

    def bell(self) -> Bell:
        """Return a new bell, which says how often to look for a name that others will create, and may ring for it."""

    def tell(self, name: str) -> None:
        """Ring the bells of this host for a name that is there, unless another process of this host has told of it.

        Args:
            name: It sorts behind the names that were told before.
        """

    def folder(self, name: str) -> Self:
        """Return the root of the names below a name; it has no further names."""

    def make_folders(self, *names: str) -> None:
        """Let names directly in the root, and directly below some names, be written from now on."""

    def create(self, name: str, data: bytes, after: Collection[str] = ()) -> bool:
        """Create a name, unless others have created it.

        Args:
            after: Names of `add_all` that this name speaks of: they are durable before it is visible.

        Returns:
            Whether the name has these bytes now: True also if an earlier call of anybody gave it the same bytes, False
            if it has other bytes, which stay.

        Raises:
            UnclearOutcome: The name may or may not have the bytes.
            OSError: The name does not have them.
        """

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write a name that no other process writes, and that no process reads before it is told of it."""

    def add_all(self, files: Mapping[str, bytes | memoryview], *, at_once: bool) -> None:
        """Write names as `add` does, together.

        Args:
            at_once: Whether they are durable on return. Else a process of this host makes them durable: its `create` makes
                a name `after` them.
        """

    def replace(self, name: str, data: bytes) -> None:
        """Give a name other bytes; a reader gets the former ones or these."""

    def change(
        self,
        name: str,
        edit: Callable[[bytes | None], bytes | None],
        known: Found | None = None,
    ) -> Found | None:
        """Replace the bytes of a name by those that `edit` returns; no change of another process is lost.

        Args:
            edit: Gets the bytes, None if the name does not exist, and returns the new ones, None to leave the name as
                it is. It may be called several times, because others change the name meanwhile.
            known: What the last call has returned. If it still is so, a far root is asked once and not twice.

        Returns:
            What the name has now; None if that would save no question of the next call.
        """

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """Give the path of a file to write, which need not exist; after the block its bytes replace the name's.

        For bytes that do not fit into memory. A block that raises leaves the name as it was.
        """

    def scratch(self, near: str) -> AbstractContextManager[Path]:
        """Give the path of a file to write, which need not exist, for `take`; what is left of it is removed afterwards.

        Args:
            near: A name in the folder that the file is for.
        """

    def take(self, path: Path, name: str) -> None:
        """Move a file of `scratch` to a name. Its bytes are durable then; the name is after `settle`."""

    def reading(self, name: str) -> AbstractContextManager[Path]:
        """Give the path of a file with the bytes of a name, to be read within the block; raises as `get` does."""

    def get(self, name: str) -> bytes:
        """Return the bytes of a name.

        Raises:
            FileNotFoundError: The name does not exist.
        """

    def has(self, name: str) -> bool:
        """Say whether a name exists."""

    def size(self, name: str) -> int | None:
        """Return the number of bytes of a name; None if it does not exist."""

    def stamp(self, name: str) -> object:
        """Return a value that is another one as soon as a name was written again; None if the name does not exist."""

    def age_s(self, name: str) -> float:
        """Return the seconds since a name was written, by the slowest clock; 0 if it does not exist."""

    def now_s(self) -> tuple[float, float]:
        """Return the time by the slowest and by the fastest clock that may stamp a name, seconds since the Unix epoch."""

    def names(self, folder: str = "") -> Iterator[str]:
        """Yield the names directly in a folder, in any order and relative to it; none if the folder does not exist.

        A name that is added or removed meanwhile may be missing.
        """

    def version(self, folder: str) -> object:
        """Return a value that another call returns again only if no name in a folder has come or gone since."""

    def settle(self, folder: str, *, with_bytes: bool = False) -> None:
        """Make the names durable that this process has seen in a folder: their writers may not have done it yet.

        Args:
            with_bytes: Whether to do it for the bytes, too, which another library has written.
        """

    def set_aside(self, name: str, is_torn: Callable[[bytes], bool]) -> str | None:
        """Rename a name if its bytes are torn; return the new name, None if nothing was renamed.

        No whole bytes are ever renamed, also if another process writes them meanwhile.
        """

    def remove(self, name: str) -> None:
        """Remove a name; one that does not exist is no error."""

    def lease_mark(self) -> LeaseMark | None:
        """Return the mark of the lease; None without one, so that processes look for themselves."""

    def note_lease(self, lease: bytes | None) -> None:
        """Let the processes of this host know the lease, which this process has read or written."""

    def count_change(self) -> None:
        """Tell processes that rest, on all hosts, that a small file was changed."""

    def address(self) -> tuple[str, dict[str, str]]:
        """Return the place of the root and the options of a client, as delta-rs takes them."""

    def alone(
        self, folder: str = "", timeout_s: float | None = None
    ) -> AbstractContextManager[bool]:
        """Keep the other processes of this host out of a folder; yields False if one was in it for too long.

        Other hosts are not kept out: data that they may destroy need `create` or `change`.
        """


def place_of(url: str) -> str:
    """Return the URL of a place in an object store in its only spelling.

    Raises:
        ConfigError: It names no bucket, or more than a place.
    """
    bucket, _, path = url.removeprefix(SCHEME).partition("/")
    folders = [part for part in path.split("/") if part]
    if (
        not url.startswith(SCHEME)
        or not _BUCKET.fullmatch(bucket)
        or not all(map(_FOLDER.fullmatch, folders))
    ):
        raise ConfigError(
            f"{url!r} is no place in an object store; write s3://BUCKET/PREFIX: BUCKET has 2 to 63 small letters, digits, dots "
            "and dashes, and the folders of PREFIX have letters, digits, dots, dashes, underscores and equals signs"
        )
    return SCHEME + "/".join((bucket, *folders))
