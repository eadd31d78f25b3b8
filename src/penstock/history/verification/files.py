"""Checks of the journal's files: each is there, and has the bytes that it was written with.

Promises to find every file of the truth that is missing or changed, and to name it. A file that is
merged into a segment while this looks is looked at there.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock.base.ids import BEFORE_FIRST, Epoch
from penstock.errors import Corrupt
from penstock.files import durable
from penstock.files.checksum import size_and_checksum_of
from penstock.history.backup_set import FileEntry, FileMismatch
from penstock.history.copying import check
from penstock.history.verification.finding import Finding, harmless, unrecoverable
from penstock.journal.action import Flaw, parse
from penstock.journal.api import PartKind
from penstock.journal.inventory import LOG, Inventory, Stored, Unit, commit_name
from penstock.journal.parquet import epoch_of
from penstock.journal.shapes import NAME as SHAPES
from penstock.journal.shapes import shapes_in
from penstock.process.data_directory import JOURNAL

_TORN: Final = ".torn."


class JournalFiles:
    """The files of a journal up to an epoch, as they were when they were looked at.

    Attributes:
        sound: The units whose files are all as they must be, in order.
        parts: Every part and segment file, relative to the journal.
    """

    def __init__(self, data: Path, upto: Epoch, told: Callable[[int, int], None]) -> None:
        """Name the journal; `told` hears how many epochs are done, of how many."""
        self._root = data / JOURNAL
        self._upto = upto
        self._told = told
        self._found: dict[Unit, list[Finding]] = {}
        self._listed: dict[Unit, list[Stored]] = {}
        self.sound: list[Unit] = []
        self.parts: set[str] = set()

    def look(self) -> Iterator[Finding]:
        """Check all files."""
        try:
            units = self._units()
        except Corrupt as error:
            yield unrecoverable(str(error), f"{JOURNAL}/_segments")
            return
        yield from self._head()
        for unit in units:
            yield from self._found[unit]
            self.parts.update(one.path for one in self._listed[unit] if one.path != unit.path)
        self.sound = [unit for unit in units if not self._found[unit]]

    def leftovers(self) -> Iterator[Finding]:
        """Look for files that no epoch lists."""
        stray = [
            path
            for kind in PartKind
            for path in (self._root / f"kind={kind}").iterdir()
            if f"kind={kind}/{path.name}" not in self.parts and self._is_past(kind, path.name)
        ]
        stray += [
            path
            for path in (self._root / LOG).iterdir()
            if path.name.endswith(durable.TEMPORARY) or _TORN in path.name
        ]
        if stray:
            yield harmless(
                f"{len(stray)} files that belong to no epoch, {stray[0].name} for one",
                JOURNAL,
                "attempts that died left them, or they were merged a while ago; they do no harm",
            )

    def _is_past(self, kind: PartKind, name: str) -> bool:
        epoch = epoch_of(f"kind={kind}/{name}")
        return epoch is not None and epoch <= self._upto

    def _units(self) -> list[Unit]:
        """Check units until none is left that was not looked at."""
        while True:
            units = Inventory(self._root).units(self._upto)
            fresh = [unit for unit in units if unit not in self._found]
            if not fresh:
                return units
            for unit in fresh:
                self._found[unit] = list(self._unit(unit))
                self._told(unit.last + 1, self._upto + 1)

    def _unit(self, unit: Unit) -> Iterator[Finding]:
        self._listed[unit] = []
        where = f"{JOURNAL}/{unit.path}"
        epochs = (
            f"epoch {unit.first}" if unit.first == unit.last else f"{unit.first} to {unit.last}"
        )
        try:
            self._listed[unit] = Inventory(self._root).files(unit)
        except FileNotFoundError:
            yield unrecoverable(f"the commit of {epochs} is missing", where)
        except Corrupt as error:
            yield unrecoverable(str(error), where)
        for one in self._listed[unit]:
            file = FileEntry(f"{JOURNAL}/{one.path}", one.size, one.checksum)
            try:
                check(file, *size_and_checksum_of(self._root / one.path))
            except FileMismatch as error:
                yield unrecoverable(f"a file of {epochs} {error}", file.path)
            except FileNotFoundError:
                yield unrecoverable(f"a file of {epochs} is missing", file.path)

    def _head(self) -> Iterator[Finding]:
        path = commit_name(BEFORE_FIRST)
        try:
            text = parse((self._root / path).read_bytes())
        except FileNotFoundError:
            yield unrecoverable("the journal's start is missing", f"{JOURNAL}/{path}")
        else:
            if isinstance(text, Flaw):
                yield unrecoverable(f"the journal's start {text}", f"{JOURNAL}/{path}")
        try:
            shapes_in((self._root / SHAPES).read_bytes())
        except FileNotFoundError:
            yield unrecoverable("how classes are stored is missing", f"{JOURNAL}/{SHAPES}")
        except ValueError as error:
            yield unrecoverable(f"what says how classes are stored {error}", f"{JOURNAL}/{SHAPES}")
