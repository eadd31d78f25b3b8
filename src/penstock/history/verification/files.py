"""Checks of the journal's files: each file exists and has the checksum with which it was written.

Every missing or changed file is found. If a file is merged into a segment during the check, the
segment is checked instead.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch, epochs_text
from penstock.errors import Corrupt
from penstock.files import durable
from penstock.files.layout import JOURNAL
from penstock.history.copying import FileEntry, FileMismatch
from penstock.history.verification.finding import Finding, harmless, unrecoverable
from penstock.journal.action import CommitFlaw, parse
from penstock.journal.inventory import LOG, EpochUnit, Inventory, StoredFile, commit_name
from penstock.journal.parquet import epoch_of, folders
from penstock.journal.shapes import NAME as SHAPES
from penstock.journal.shapes import versions_in

_TORN: Final = ".torn."


class JournalFiles:
    """The files of a journal up to an epoch.

    Attributes:
        sound: After `look`, the undamaged units, in order.
        parts: After `look`, the paths of all parts and segment files, relative to the journal.
    """

    def __init__(self, data: Path, upto: Epoch, progress: Callable[[int, int], None]) -> None:
        """Prepare a check.

        Args:
            progress: Receives the number of checked epochs, and of all epochs.
        """
        self._root = data / JOURNAL
        self._upto = upto
        self._progress = progress
        self._findings: dict[EpochUnit, list[Finding]] = {}
        self._files: dict[EpochUnit, list[StoredFile]] = {}
        self.sound: list[EpochUnit] = []
        self.parts: set[str] = set()

    def look(self) -> Iterator[Finding]:
        """Check all files."""
        try:
            units = self._check_units()
        except Corrupt as error:
            yield unrecoverable(str(error), f"{JOURNAL}/_segments")
            return
        yield from self._check_head()
        for unit in units:
            yield from self._findings[unit]
            self.parts.update(file.path for file in self._files[unit] if file.path != unit.path)
        self.sound = [unit for unit in units if not self._findings[unit]]

    def leftovers(self) -> Iterator[Finding]:
        """Find files that no epoch lists; call this after `look`."""
        stray = [
            path
            for folder, directory in folders(self._root)
            for path in directory.iterdir()
            if f"{folder}/{path.name}" not in self.parts and self._is_old(f"{folder}/{path.name}")
        ]
        stray += [
            path
            for path in (self._root / LOG).iterdir()
            if path.name.endswith(durable.TEMPORARY) or _TORN in path.name
        ]
        if stray:
            yield harmless(
                f"{len(stray)} files belong to no epoch, for example {stray[0].name}",
                JOURNAL,
                "failed attempts left them, or their rows were merged; maintenance removes them",
            )

    def _is_old(self, path: str) -> bool:
        epoch = epoch_of(path)
        return epoch is not None and epoch <= self._upto

    def _check_units(self) -> list[EpochUnit]:
        """Check units until each unit of the newest inventory is checked; return that inventory."""
        while True:
            units = Inventory(self._root).units(self._upto)
            unchecked = [unit for unit in units if unit not in self._findings]
            if not unchecked:
                return units
            for unit in unchecked:
                self._findings[unit] = list(self._check_unit(unit))
                self._progress(unit.last + 1, self._upto + 1)

    def _check_unit(self, unit: EpochUnit) -> Iterator[Finding]:
        self._files[unit] = []
        where = f"{JOURNAL}/{unit.path}"
        epochs = epochs_text(unit.first, unit.last)
        try:
            self._files[unit] = Inventory(self._root).files(unit)
        except FileNotFoundError:
            yield unrecoverable(f"the commit of {epochs} is missing", where)
        except Corrupt as error:
            yield unrecoverable(str(error), where)
        for stored in self._files[unit]:
            file = FileEntry(f"{JOURNAL}/{stored.path}", stored.size, stored.checksum)
            try:
                file.check_file(self._root / stored.path)
            except FileMismatch as error:
                yield unrecoverable(f"a file of {epochs} {error}", file.path)

    def _check_head(self) -> Iterator[Finding]:
        path = commit_name(BEFORE_FIRST)
        try:
            first = parse((self._root / path).read_bytes())
        except FileNotFoundError:
            yield unrecoverable("the journal's first file is missing", f"{JOURNAL}/{path}")
        else:
            if isinstance(first, CommitFlaw):
                yield unrecoverable(f"the journal's first file {first}", f"{JOURNAL}/{path}")
        try:
            versions_in((self._root / SHAPES).read_bytes())
        except FileNotFoundError:
            yield unrecoverable("the file of stored classes is missing", f"{JOURNAL}/{SHAPES}")
        except ValueError as error:
            yield unrecoverable(f"the file of stored classes {error}", f"{JOURNAL}/{SHAPES}")
