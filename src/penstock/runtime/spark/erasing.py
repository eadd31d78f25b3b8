"""The execution of an erasure: its epoch deletes the entity, and the key is destroyed after the commit."""

import time
from pathlib import Path

import msgspec

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import RequestError
from penstock.files.layout import SUBJECT_KEYS
from penstock.model.control import Erase
from penstock.process.erasures import Certificate, Erasures
from penstock.runtime.spark.control import ControlEffect, Refused


class Eraser:
    """Executes erasures for the driver of one data directory."""

    def __init__(self, data: Path, journal: str) -> None:
        """Prepare.

        Args:
            data: The data directory.
            journal: The identity of its journal.
        """
        self._data = data
        self._journal = journal
        self._erasures = Erasures(data)

    def finish(self, epoch: Epoch) -> None:
        """Destroy the keys of the erasures that are committed; a crash may have come before.

        Raises:
            Corrupt: The file of certificates or of keys is damaged.
            JournalUnavailable: The disk is full or fails.
        """
        self._erasures.complete(epoch)

    def forget(self, epoch: Epoch) -> None:
        """Forget the erasures after the newest epoch, which the driver records as failed; raises as `Erasures.forget`."""
        self._erasures.forget(epoch)

    def prepare(self, control: Erase, epoch: Epoch) -> ControlEffect:
        """Store the certificate, and delete the entity in the epoch.

        Raises:
            Refused: The subject was erased meanwhile, or there are no keys.
            PenstockError: The disk fails.
        """
        if not (self._data / SUBJECT_KEYS).exists():
            raise Refused(RequestError(f"{SUBJECT_KEYS} is missing, so there is no key to destroy"))
        if self._erasures.generation(control.subject) != control.generation:
            raise Refused(RequestError(f"{control.subject} was erased already"))
        certificate = Certificate(
            control.subject, control.generation, epoch, time.time_ns() // 1_000, self._journal
        ).sealed()
        self._erasures.record(certificate)
        return ControlEffect(
            msgspec.to_builtins(certificate),
            {EntityKey(control.subject): None},
            lambda: self.finish(epoch),
        )
