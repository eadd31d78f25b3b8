"""The code of a worker: the application, and its classes in the journal.

Code that was unpacked from an archive has modules of its own (`process.side_modules`), so that two versions fit into one
process: the code of a deployment is loaded while the present code is in use, and then takes its place. The former code is
dropped: after a rollback it is loaded again, because it must read the rows of the versions that came between.
"""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from penstock.base.ids import Epoch
from penstock.engine.calls import Member, Site, members_of
from penstock.files.durable import storage
from penstock.journal.delta import DeltaJournal
from penstock.journal.shapes import Shapes
from penstock.model.application import App
from penstock.model.schema_version import Versions
from penstock.process.data_directory import DataDirectory
from penstock.process.deployed_code import is_unpacked
from penstock.process.loading import load, locate
from penstock.process.side_modules import SideModules, top_level


@dataclass(frozen=True, slots=True)
class WorkerCode:
    """One version of the code.

    Attributes:
        app: The application.
        members: Its members, for the count of calls.
        journal: The journal, which knows the classes of this version.
        modules: Its modules; None if they are those of the process.
    """

    app: App
    members: dict[Site, Member]
    journal: DeltaJournal
    modules: SideModules | None


class WorkerCodes:
    """The versions that a worker has loaded, one of which is in use.

    Attributes:
        present: The code in use.
    """

    def __init__(self, directory: DataDirectory, spec: str) -> None:
        """Load the first version, and use it.

        Raises:
            PenstockError: The code cannot be loaded, or does not fit the journal.
        """
        self._directory = directory
        self._spec = spec
        self.present = self._load(spec)
        self._loaded = {spec: self.present}
        self._enter()

    def use(self, spec: str) -> None:
        """Let all later work use a version, which is loaded first if `prepare` has not loaded it.

        Raises:
            PenstockError: As in `prepare`; the present code stays in use.
        """
        if spec == self._spec:
            return
        code = self.prepare(spec)
        self._leave()
        self._loaded = {spec: code}
        self._spec, self.present = spec, code
        self._enter()

    def prepare(self, spec: str, dropped: Collection[str] = ()) -> WorkerCode:
        """Load a version, and keep the present one in use.

        Args:
            spec: The version.
            dropped: The stored classes that it may lack; those that a deployment has dropped need no mention.

        Raises:
            PenstockError: The code cannot be loaded, or does not fit the journal.
        """
        if spec not in self._loaded:
            self._loaded = {self._spec: self.present}  # what was prepared before was refused
            self._leave()
            try:
                self._loaded[spec] = self._load(spec, dropped)
            finally:
                self._enter()
        return self._loaded[spec]

    def schemas(
        self, code: WorkerCode, since: Epoch, dropped: Collection[str]
    ) -> dict[str, Versions]:
        """Return the schema versions of each stored class if some code were deployed; nothing is written.

        Args:
            code: The code.
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
        modules = None
        if is_unpacked(self._directory.path, location):
            folder = Path(location.folder)
            modules = SideModules(folder, top_level(folder))
        with nullcontext() if modules is None else modules.active():
            app = load(location)
        journal = self._directory.open_journal(app, dropped=dropped)
        return WorkerCode(app, members_of(app), journal, modules)

    def _enter(self) -> None:
        if self.present.modules is not None:
            self.present.modules.enter()

    def _leave(self) -> None:
        if self.present.modules is not None:
            self.present.modules.leave()
