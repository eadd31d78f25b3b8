"""The execution of an erasure: its epoch deletes the entity, and the key is destroyed after the commit."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from penstock.base.ids import EntityKey, Epoch
from penstock.errors import ConfigError, RequestError
from penstock.files.key_file import KeyFile
from penstock.files.layout import SUBJECT_KEYS
from penstock.files.roots import check_forgets, journal_root
from penstock.journal.shapes import Shapes
from penstock.log.clock import wall_clock_us
from penstock.model.control import Erase
from penstock.model.entity_type import EntityType
from penstock.model.personal import rows_of
from penstock.model.shape import is_personal
from penstock.model.versions.stored_class import stored_type
from penstock.process.erasures import Certificate, Erasures
from penstock.runtime.spark.control import ControlEffect, Refused


class Eraser:
    """Executes erasures for the driver of one data directory."""

    def __init__(self, data: Path, journal: str) -> None:
        self._data = data
        self._shapes = Shapes(journal_root(data), {})
        self._journal = journal
        self._erasures = Erasures(data)

    def finish(self, epoch: Epoch) -> None:
        """Destroy the keys of the erasures that are committed; a crash may have come before."""
        self._erasures.complete(self._journal, epoch)

    def forget(self, epoch: Epoch) -> None:
        """Forget the erasures after the newest epoch, which the driver records as failed; raises as `Erasures.forget`."""
        self._erasures.forget(self._journal, epoch)

    def prepare(
        self, control: Erase, epoch: Epoch, leave: Callable[[], Mapping[EntityKey, bytes | None]]
    ) -> ControlEffect:
        """Store the certificate, and delete the entity in the epoch, with the rows of tasks whose key it is.

        Args:
            leave: Returns the further changes of the epoch, and None for the entity if it exists; called while the key is there.
        """
        if not KeyFile(self._data / SUBJECT_KEYS).exists:
            raise Refused(RequestError(f"{SUBJECT_KEYS} is missing, so there is no key to destroy"))
        try:
            check_forgets(self._data)
        except ConfigError as error:
            raise Refused(RequestError(str(error))) from error
        if self._erasures.generation(control.subject) != control.generation:
            raise Refused(RequestError(f"{control.subject} was erased already"))
        rows, subject = leave(), EntityKey(control.subject)
        certificate = Certificate(
            control.subject, control.generation, epoch, wall_clock_us(), self._journal,
            existed=subject in rows,
        ).sealed()  # fmt: skip
        self._erasures.record(certificate)
        return ControlEffect(
            msgspec.to_builtins(certificate),
            {**dict.fromkeys(rows_of(self._personal_classes(), subject)), **rows},
            lambda: self.finish(epoch),
        )

    def _personal_classes(self) -> Iterator[EntityType]:
        """Yield the classes with encrypted rows, also those of removed tasks."""
        for name, versions in self._shapes.versions().items():
            if is_personal(shape := versions[-1].shape):
                yield stored_type(name, shape)
