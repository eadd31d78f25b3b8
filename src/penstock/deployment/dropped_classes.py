"""Dropped classes: stored classes that a deployment removes from an application.

A class that disappears from the source is refused, because that may be an accident, and would hide its entities. So the
user names the class. The removal of an application of a set drops the classes of that application.
"""

import os
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import ConfigError
from penstock.files.roots import journal_root
from penstock.journal.deployments import Deployments
from penstock.model.application import App
from penstock.process.data_directory import DataDirectory


class Drop(msgspec.Struct, frozen=True):
    """The stored classes that the code of a deployment may lack.

    Attributes:
        must_be: Whether the code must lack each of them: a user has named it.
    """

    names: tuple[str, ...] = ()
    must_be: bool = False

    def require(self, removed: Collection[str]) -> None:
        """Check that the classes that a user has named are removed; they may have been removed before.

        Args:
            removed: The stored classes that the code lacks.
        """
        for name in self.names if self.must_be else ():
            if name not in removed:
                raise ConfigError(
                    f"--drop {name}: the code still has this class, or no entity of it is stored; nothing is deployed"
                )


NOTHING_DROPPED: Final = Drop()


def dropped(names: Collection[str]) -> Drop:
    """Return the classes that a user has named, each of which must be removed."""
    return Drop(tuple(names), must_be=True)


def classes_in_force(data: Path) -> Drop:
    """Return the classes of the code in force, of which a deployment without one of its applications lacks some."""
    every = Deployments(journal_root(data)).every()
    return Drop(tuple(every[-1].shapes)) if every else NOTHING_DROPPED


def drop_at_start(data: Path, app: App, drop: Drop) -> None:
    """Drop classes durably for the start of a driver, which has not begun.

    If the driver then starts with code that has such a class again, nothing is removed. A start with the same classes may
    follow: a supervisor starts a command again as it is.
    """
    directory = DataDirectory(data)
    if directory.app_name is None:
        raise ConfigError(f"there is no journal in {data}, so there is no class to drop")
    lock = directory.claim()
    try:
        with closing(directory.open_journal(app, dropped=drop.names)) as journal:
            drop.require(app.removed)
            journal.deploy()
    finally:
        os.close(lock)
