"""Verification of a data directory: all checksums and invariants, and the remedy of each damage.

The application may run: the check covers the epochs that exist when it begins, follows files that
move, and reports what it could not check. It writes only a retention lease, so that no file is
removed during the check. `repair` removes damaged files that can be rebuilt.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec

from penstock.base.ids import Epoch
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError
from penstock.files.layout import ERASURES, JOURNAL, LOG, SNAPSHOTS
from penstock.history.backup_set import no_history
from penstock.history.reader import HistoryReader
from penstock.history.verification import components
from penstock.history.verification.archives import check_archives
from penstock.history.verification.files import JournalFiles
from penstock.history.verification.finding import Finding, NotChecked, Remedy, unrecoverable
from penstock.history.verification.persons import (
    certificates_in,
    check_certificates,
    check_keys,
)
from penstock.history.verification.rows import JournalRows
from penstock.history.verification.stores import check_states
from penstock.journal.api import Commit
from penstock.journal.delta import DeltaJournal
from penstock.journal.inventory import LOG as COMMITS
from penstock.journal.inventory import newest_listed
from penstock.model.application import App
from penstock.model.shape import is_personal
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Erasures
from penstock.retention.leases import lease
from penstock.snapshots.delta_table import LOG_FOLDER
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import publish_tables, snapshot_lock

Progress = Callable[[str, int, int], None]
"""Receives the name of a check, the amount of work that is done, and the total."""

Check = Callable[[], Iterator[Finding]]
ExtraCheck = Callable[[Path, str, Epoch], Iterator[Finding]]
"""A check of a higher layer: receives data directory, identity of the journal, newest epoch."""

_CHECKPOINTS: Final = "*.checkpoint.parquet"


class VerificationReport(msgspec.Struct, frozen=True):
    """The result of a verification.

    Attributes:
        data: The data directory.
        first, epoch: The first and the last checked epoch.
        findings: All findings, harmless ones included.
        skipped: Checks that were not possible, and why.
    """

    data: str
    first: Epoch
    epoch: Epoch
    findings: list[Finding]
    skipped: list[str]

    @property
    def problems(self) -> list[Finding]:
        """The findings that are not harmless."""
        return [finding for finding in self.findings if finding.is_problem]


def verify(
    data: Path, app: App, progress: Progress, extra: Sequence[ExtraCheck] = ()
) -> VerificationReport:
    """Check a data directory.

    Args:
        progress: Receives the name of the running check.

    Raises:
        ConfigError: The directory has no committed epoch, or is of another application.
        ClassChanged: The application declares a class differently from its stored shape.
        OperationalError: The disk fails.
    """
    if not (data / JOURNAL / COMMITS).is_dir():
        raise no_history(data)
    with suppress(Corrupt, Diverged):  # the checks below report these
        DataDirectory(data).check_app(app)
    with lease(data, "verify", Epoch(0)):
        try:
            journal = DataDirectory(data).open_journal(app)
            newest = journal.last()
        except (Corrupt, Diverged) as error:
            return _report_without_journal(data, app, error, progress)
        if newest is None:
            raise no_history(data)
        with closing(journal):
            return _Verification(data, app, journal, newest, progress).run(extra)


def repair(data: Path, app: App, report: VerificationReport) -> list[str]:
    """Remove damaged files that can be rebuilt, and return their paths.

    Args:
        app: Its application, which must not run.

    Raises:
        ConfigError: The application runs.
        OperationalError: The disk fails.
    """
    for role in presence.ROLES:
        for process in presence.find(data, role):
            raise ConfigError(f"process {process.pid} runs {process.app} in {data}; stop it first")
    removed = [item.where for item in report.findings if item.remedy is Remedy.REBUILD]
    try:
        for where in removed:
            _remove(data, app, where)
        if components.DELTA in removed:
            _rewrite_checkpoint(data, app)
        if any(where.startswith(f"{SNAPSHOTS}/") for where in removed):
            _publish_tables(data, app)
    except OSError as error:
        raise OperationalError(f"cannot repair {data}: {error.strerror}") from error
    return removed


class _Verification:
    """One run of all checks."""

    def __init__(
        self, data: Path, app: App, journal: DeltaJournal, newest: Commit, progress: Progress
    ) -> None:
        self._data = data
        self._app = app
        self._journal = journal
        self._newest = newest
        self._progress = progress
        self._findings: list[Finding] = []
        self._skipped: list[str] = []
        self._files = _files_of(data, newest.epoch, progress)

    def run(self, extra: Sequence[ExtraCheck]) -> VerificationReport:
        """Run all checks."""
        data, journal, epoch = self._data, self._journal, self._newest.epoch
        first = journal.first()
        self._run("journal", self._files.look)
        is_sound = not self._findings
        self._run("journal", self._files.leftovers)
        self._run("log", lambda: components.check_log(data, journal, self._newest))
        self._run("requests", self._check_rows)
        self._run("savepoints", lambda: components.check_savepoints(data, journal, epoch))
        self._run("deployments", lambda: check_archives(data, first))
        parts = self._files.parts
        self._run("Delta readers", lambda: components.check_delta(data, journal, epoch, parts))
        if any(map(is_personal, journal.shapes().values())):
            self._run("keys", lambda: check_keys(data))
            self._run("erasures", lambda: check_certificates(data, journal))
        self._run("checkpoint", lambda: components.check_spark(data, journal))
        self._run("snapshots", lambda: components.check_snapshots(data, journal, content=is_sound))
        self._run("snapshots", lambda: components.check_tables(data, self._app, journal))
        if is_sound:
            self._run("state", self._check_states)
        else:
            self._skipped.append("local state: the journal is damaged")
        for check in extra:
            self._run("view", lambda check=check: check(data, journal.identity, epoch))  # type: ignore[misc]
        return VerificationReport(str(data), first, epoch, self._findings, self._skipped)

    def _run(self, what: str, check: Check) -> None:
        self._progress(what, 0, 1)
        try:
            self._findings.extend(check())
        except NotChecked as error:
            self._skipped.append(str(error))
        except (Corrupt, Diverged) as error:
            if any(finding.remedy is Remedy.BACKUP for finding in self._findings):
                self._skipped.append(f"{what}: {error}")
            else:
                self._findings.append(unrecoverable(str(error), JOURNAL))

    def _check_rows(self) -> Iterator[Finding]:
        log = None
        is_damaged = any(finding.where == LOG for finding in self._findings)
        if not is_damaged and (self._data / LOG).exists():
            log = DataDirectory(self._data).open_log()
        try:
            rows = JournalRows(
                self._app,
                self._journal,
                log,
                lambda done, total: self._progress("requests", done, total),
            )
            yield from rows.look(self._files.sound)
        finally:
            if log is not None:
                log.close()

    def _check_states(self) -> Iterator[Finding]:
        with HistoryReader(self._data, self._app) as history:
            yield from check_states(
                self._data, self._journal, lambda epoch: history.state_before(Epoch(epoch + 1))
            )


def _files_of(data: Path, upto: Epoch, progress: Progress) -> JournalFiles:
    return JournalFiles(data, upto, lambda done, total: progress("journal", done, total))


def _report_without_journal(
    data: Path, app: App, error: Exception, progress: Progress
) -> VerificationReport:
    """Check the files of a journal that cannot be opened, because it is damaged or what destroys erased keys is."""
    epoch = newest_listed(data / JOURNAL)
    files = _files_of(data, epoch, progress)
    findings = [*files.look(), *check_keys(data)]
    with (
        suppress(Corrupt, Diverged),
        closing(DataDirectory(data).open_journal_of(app.name)) as journal,
    ):
        findings += check_certificates(data, journal)
    findings = findings or [unrecoverable(str(error), JOURNAL)]
    skipped = ["all other files: the journal cannot be opened"]
    return VerificationReport(str(data), Epoch(0), epoch, findings, skipped)


def _remove(data: Path, app: App, where: str) -> None:
    path = data / where
    if where == ERASURES:  # the certificates that it has stay
        _add_certificates(data, app)
    elif path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _add_certificates(data: Path, app: App) -> None:
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        Erasures(data).add(certificates_in(journal))


def _publish_tables(data: Path, app: App) -> None:
    """Let Delta readers see the newest snapshot that is left; without one, they see no table."""
    with closing(DataDirectory(data).open_journal_of(app.name)) as journal:
        snapshots = Snapshots(data / SNAPSHOTS, journal.identity)
    with snapshot_lock(snapshots, wait=True):
        if snapshots.newest() is None:
            for path in snapshots.directory.glob(f"*/{LOG_FOLDER}"):
                shutil.rmtree(path)
        publish_tables(snapshots, app.name, app)


def _rewrite_checkpoint(data: Path, app: App) -> None:
    for path in (data / JOURNAL / COMMITS).glob(_CHECKPOINTS):
        path.unlink()
    with closing(DataDirectory(data).open_journal(app)) as journal:
        journal.checkpoint()
