"""Findings: what is wrong in a data directory, where, and what can be done about it."""

from enum import StrEnum

import msgspec


class Remedy(StrEnum):
    """What helps."""

    NONE = "none"  # nothing is needed: it passes by itself, or cannot be changed and does no harm
    REBUILD = "rebuild"  # it is derived from what is sound
    BACKUP = "backup"  # it is the truth, and nothing else has it


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        what: What, in a sentence.
        where: The file or folder, relative to the data directory.
        remedy: Whether it can be rebuilt.
        how: What to do.
    """

    what: str
    where: str
    remedy: Remedy
    how: str

    @property
    def is_problem(self) -> bool:
        """Whether anything must be done."""
        return self.remedy is not Remedy.NONE


class NotChecked(Exception):
    """Something could not be checked now, which is no finding; the message says why."""


def unrecoverable(what: str, where: str) -> Finding:
    """Return the finding of a file that only a backup has."""
    how = "put it back from a backup: penstock restore DIR NEW_DATA, and take it from there"
    return Finding(what, where, Remedy.BACKUP, how)


def rebuildable(what: str, where: str) -> Finding:
    """Return the finding of a file that is derived."""
    how = "penstock verify APP --repair removes it; it is built anew when it is needed"
    return Finding(what, where, Remedy.REBUILD, how)


def harmless(what: str, where: str, why: str) -> Finding:
    """Return the finding of something that does no harm."""
    return Finding(what, where, Remedy.NONE, why)
