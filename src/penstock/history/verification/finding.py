"""Findings: the problems of a data directory, the file of each, and its remedy."""

from enum import StrEnum
from typing import Final

import msgspec


class Remedy(StrEnum):
    """The kind of action that a finding needs."""

    NONE = "none"  # nothing: it is temporary, or harmless
    REBUILD = "rebuild"  # repair it: it follows from undamaged data
    BACKUP = "backup"  # restore it: only a backup has it


class Finding(msgspec.Struct, frozen=True):
    """One problem.

    Attributes:
        what: The problem, in a sentence.
        where: The file or folder, relative to the data directory.
        how: The action, in a sentence.
    """

    what: str
    where: str
    remedy: Remedy
    how: str

    @property
    def is_problem(self) -> bool:
        """Whether the user must act."""
        return self.remedy is not Remedy.NONE


_REBUILD: Final = "penstock verify APP --repair removes it; it is rebuilt when it is needed"
_BY_ITSELF: Final = "the next process that needs it rebuilds it"


class NotChecked(Exception):
    """A check was not possible now; the message says which, and why."""


def unrecoverable(what: str, where: str) -> Finding:
    """Return the finding of a damaged file that only a backup has."""
    how = "restore a backup to another directory (penstock restore DIR NEW_DATA) and copy the file"
    return Finding(what, where, Remedy.BACKUP, how)


def rebuildable(what: str, where: str, how: str = _REBUILD) -> Finding:
    """Return the finding of a damaged file that can be rebuilt, and is not rebuilt by itself."""
    return Finding(what, where, Remedy.REBUILD, how)


def harmless(what: str, where: str, why: str = _BY_ITSELF) -> Finding:
    """Return the finding of something harmless; `why` says why no action is needed."""
    return Finding(what, where, Remedy.NONE, why)
