"""The code of a worker: the application, and its classes in the journal.

Code that was unpacked from an archive has modules of its own (`deployment.side_modules`), so that two versions fit into one
process: the code of a deployment is loaded while the present code is in use, and then takes its place. The former code is
dropped: after a rollback it is loaded again, because it must read the rows of the versions that came between.
"""

from collections.abc import Collection
from dataclasses import dataclass

from penstock.base.ids import Epoch
from penstock.deployment.code_in_force import is_unpacked
from penstock.deployment.loading import load, locate
from penstock.deployment.side_modules import LoadedCode, load_aside
from penstock.engine.calls import Member, Site, members_of
from penstock.files.durable import storage
from penstock.journal.delta import DeltaJournal
from penstock.journal.shapes import Shapes
from penstock.model.schema_version import Versions
from penstock.process.data_directory import DataDirectory
from penstock.runtime.spark.messages import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCode(LoadedCode):
    """One version of the code.

    Attributes:
        members: Its members, for the count of calls.
    """

    members: dict[Site, Member]
    journal: DeltaJournal


class WorkerCodes:
    """The versions that a worker has loaded, one of which is in use."""

    def __init__(self, directory: DataDirectory, code: Code) -> None:
        """Load the first version, and use it.

        Raises:
            PenstockError: The code cannot be loaded, or does not fit the journal.
        """
        self._directory = directory
        self._code = code
        self.present = self._load(code[0])
        self._loaded = {code: self.present}
        self._enter()

    def use(self, code: Code) -> None:
        """Let all later work use a version, which is loaded first if `prepare` has not loaded it.

        Raises:
            PenstockError: As in `prepare`; the present code stays in use.
        """
        if code == self._code:
            return
        loaded = self.prepare(code)
        self._leave()
        self._loaded = {code: loaded}
        self._code, self.present = code, loaded
        self._enter()

    def prepare(self, code: Code, dropped: Collection[str] = ()) -> WorkerCode:
        """Load a version, and keep the present one in use.

        Args:
            code: The version; it is loaded again if this deployment of it is not the one that is loaded.
            dropped: The stored classes that it may lack; those that a deployment has dropped need no mention.

        Raises:
            PenstockError: The code cannot be loaded, or does not fit the journal.
        """
        if code not in self._loaded:
            self._loaded = {self._code: self.present}  # what was prepared before was refused
            self._leave()
            try:
                self._loaded[code] = self._load(code[0], dropped)
            finally:
                self._enter()
        return self._loaded[code]

    def schemas(
        self, code: WorkerCode, since: Epoch, dropped: Collection[str]
    ) -> dict[str, Versions]:
        """Return the schema versions of each stored class if some code were deployed; nothing is written.

        Args:
            since: The first epoch that may have rows of new versions.
            dropped: The stored classes that it may lack.

        Raises:
            ClassChanged: A class cannot read its stored rows.
            Corrupt: The file of shapes is missing or damaged.
        """
        with storage("read how classes are stored"):
            return Shapes(self._directory.journal_path, code.app.stored, dropped).planned(since)

    def close(self) -> None:
        """Close the journals, and put the modules of the process back."""
        self._leave()
        for code in self._loaded.values():
            code.journal.close()

    def _load(self, spec: str, dropped: Collection[str] = ()) -> WorkerCode:
        location = locate(spec)
        is_archive = is_unpacked(self._directory.path, location)
        code = load_aside(location) if is_archive else LoadedCode(load(location), location)
        # The journal compares classes, and an annotation that is text is looked up in the modules of its class.
        with code.active():
            journal = self._directory.open_journal(code.app, dropped=dropped)
        members = members_of(code.app)
        return WorkerCode(code.app, location, code.modules, members=members, journal=journal)

    def _enter(self) -> None:
        if self.present.modules is not None:
            self.present.modules.enter()

    def _leave(self) -> None:
        if self.present.modules is not None:
            self.present.modules.leave()
