"""Verifying a data directory: every checksum and every invariant, and what can be done.

It may run beside the application: it looks at what was there when it began, follows files that move,
and says what it could not check. It writes nothing but its hold on history, so that nothing which it
is about to read is forgotten. `repair` is the exception: it removes what is derived and broken.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError
from penstock.history.backup_set import no_history
from penstock.history.reader import HistoryReader
from penstock.history.verification import components as others
from penstock.history.verification.files import JournalFiles
from penstock.history.verification.finding import Finding, NotChecked, Remedy, unrecoverable
from penstock.history.verification.rows import JournalRows
from penstock.history.verification.stores import check_states
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import LOG as COMMITS
from penstock.journal.inventory import newest_listed
from penstock.model.application import App
from penstock.process import presence
from penstock.process.data_directory import JOURNAL, LOG, DataDirectory
from penstock.retention.leases import holding

Progress = Callable[[str, int, int], None]
"""For progress: what is being checked, how much of it is done, of how much."""

Check = Callable[[], Iterator[Finding]]
ExtraCheck = Callable[[Path, str, Epoch], Iterator[Finding]]
"""A check that lies in a layer above: takes data directory, identity of the journal, newest epoch."""

_CHECKPOINTS: Final = "*.checkpoint.parquet"


class VerificationReport(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        data: The directory.
        first, epoch: The epochs that were checked, both included.
        findings: What is wrong.
        skipped: What could not be checked, and why.
    """

    data: str
    first: Epoch
    epoch: Epoch
    findings: list[Finding]
    skipped: list[str]

    @property
    def problems(self) -> list[Finding]:
        """The findings that want something to be done."""
        return [one for one in self.findings if one.is_problem]


def verify(
    data: Path, app: App, told: Progress, more: Sequence[ExtraCheck] = ()
) -> VerificationReport:
    """Check a data directory.

    Raises:
        ConfigError: Nothing was ever committed there, or by another application.
        ClassChanged: The application's classes are declared otherwise than they are stored.
        OperationalError: The disk fails.
    """
    if not (data / JOURNAL / COMMITS).is_dir():
        raise no_history(data)
    with suppress(Corrupt, Diverged):  # of which is said more below
        DataDirectory(data).check_app(app)
    with holding(data, "verify", Epoch(0)):
        try:
            journal = DataDirectory(data).open_journal(app)
            newest = journal.last()
        except (Corrupt, Diverged) as error:
            return _without_journal(data, error, told)
        if newest is None:
            raise no_history(data)
        with closing(journal):
            return _Verification(data, app, journal, newest, told).run(more)


def repair(data: Path, app: App, found: VerificationReport) -> list[str]:
    """Remove what is derived and broken, so that it is built anew; return what was removed.

    Raises:
        ConfigError: The application runs.
        OperationalError: The disk fails.
    """
    for role in presence.ROLES:
        for one in presence.find(data, role):
            raise ConfigError(f"process {one.pid} runs {one.app} in {data}; stop it first")
    removed = [one.where for one in found.findings if one.remedy is Remedy.REBUILD]
    try:
        for where in removed:
            path = data / where
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        if others.DELTA in removed:
            _condense(data, app)
    except OSError as error:
        raise OperationalError(f"cannot repair {data}: {error.strerror}") from error
    return removed


class _Verification:
    """One run: the checks in order, and what they have found."""

    def __init__(
        self, data: Path, app: App, journal: DeltaJournal, newest: Commit, told: Progress
    ) -> None:
        self._data = data
        self._app = app
        self._journal = journal
        self._newest = newest
        self._told = told
        self._findings: list[Finding] = []
        self._skipped: list[str] = []
        self._files = JournalFiles(
            data, newest.epoch, lambda done, total: told("journal", done, total)
        )

    def run(self, more: Sequence[ExtraCheck]) -> VerificationReport:
        """Make all checks."""
        data, journal, epoch = self._data, self._journal, self._newest.epoch
        first = journal.first()
        self._check("journal", self._files.look)
        whole = not self._findings
        self._check("journal", self._files.leftovers)
        self._check("log", lambda: others.check_log(data, journal, self._newest))
        self._check("requests", self._rows)
        self._check("savepoints", lambda: others.check_savepoints(data, journal, epoch))
        parts = self._files.parts
        self._check("Delta readers", lambda: others.check_delta(data, journal, epoch, parts))
        self._check("checkpoint", lambda: others.check_spark(data, journal))
        self._check("snapshots", lambda: others.check_snapshots(data, journal, content=whole))
        if whole:
            self._check("state", self._states)
        else:
            self._skipped.append("local state: the journal is damaged")
        for one in more:
            self._check("view", lambda one=one: one(data, journal.identity, epoch))  # type: ignore[misc]
        return VerificationReport(str(data), first, epoch, self._findings, self._skipped)

    def _check(self, what: str, check: Check) -> None:
        self._told(what, 0, 1)
        try:
            self._findings.extend(check())
        except NotChecked as error:
            self._skipped.append(str(error))
        except (Corrupt, Diverged) as error:
            if any(one.remedy is Remedy.BACKUP for one in self._findings):
                self._skipped.append(f"{what}: {error}")
            else:
                self._findings.append(unrecoverable(str(error), JOURNAL))

    def _rows(self) -> Iterator[Finding]:
        log = None
        if not any(one.where == LOG for one in self._findings) and (self._data / LOG).exists():
            log = DataDirectory(self._data).open_log()
        try:
            rows = JournalRows(
                self._app,
                self._journal,
                log,
                lambda done, total: self._told("requests", done, total),
            )
            yield from rows.look(self._files.sound)
        finally:
            if log is not None:
                log.close()

    def _states(self) -> Iterator[Finding]:
        with HistoryReader(self._data, self._app) as past:
            yield from check_states(
                self._data, self._journal, lambda epoch: past.state_before(Epoch(epoch + 1))
            )


def _without_journal(data: Path, error: Exception, told: Progress) -> VerificationReport:
    """Say what can be said of a journal that cannot be opened: which of its files are damaged."""
    epoch = newest_listed(data / JOURNAL)
    files = JournalFiles(data, epoch, lambda done, total: told("journal", done, total))
    found = list(files.look()) or [unrecoverable(str(error), JOURNAL)]
    return VerificationReport(
        str(data), Epoch(0), epoch, found, ["all else: the journal cannot be opened"]
    )


def _condense(data: Path, app: App) -> None:
    for path in (data / JOURNAL / COMMITS).glob(_CHECKPOINTS):
        path.unlink()
    with closing(DataDirectory(data).open_journal(app)) as journal:
        journal.checkpoint()
