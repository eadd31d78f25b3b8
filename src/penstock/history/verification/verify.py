"""Verification of a data directory: all checksums and invariants, and the remedy of each damage.

The application may run: the check covers the epochs that exist when it begins, follows files that
move, and reports what it could not check. It writes only a retention lease, so that no file is
removed during the check. `repair` removes damaged files that can be rebuilt.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pyarrow.compute as pc

from penstock.base.ids import BEFORE_FIRST, EntityKey, Epoch, bucket_of, partition_of
from penstock.deployment.archives import Archives
from penstock.errors import ConfigError, Corrupt, Diverged, OperationalError
from penstock.files.key_file import KEYS_REMEDY, KeyFile
from penstock.files.layout import ARCHIVES, ERASURES, JOURNAL, LOG, SNAPSHOTS, STATE, SUBJECT_KEYS
from penstock.history.backup_set import no_history
from penstock.history.reader import HistoryReader
from penstock.history.verification import components
from penstock.history.verification.files import JournalFiles
from penstock.history.verification.finding import (
    Finding,
    NotChecked,
    Remedy,
    harmless,
    rebuildable,
    unrecoverable,
)
from penstock.history.verification.rows import JournalRows
from penstock.journal.api import Commit, Journal, PartKind, newest_epoch
from penstock.journal.delta import DeltaJournal
from penstock.journal.deployments import NAME, Deployments, needed_archives
from penstock.journal.inventory import LOG as COMMITS
from penstock.journal.inventory import newest_listed
from penstock.model.application import App
from penstock.model.shape import is_personal
from penstock.orders.erasure_order import ORDER
from penstock.orders.order import control_id
from penstock.process import presence
from penstock.process.data_directory import DataDirectory
from penstock.process.erasures import Certificate, Erasures
from penstock.process.presence import boot_id
from penstock.retention.leases import lease
from penstock.snapshots.delta_table import LOG_FOLDER
from penstock.snapshots.snapshot import Snapshots
from penstock.snapshots.snapshot_writer import publish_tables, snapshot_lock
from penstock.state import environment as environments
from penstock.state import record
from penstock.state.digest import digest_of_items, digest_of_mapping
from penstock.state.examine import is_sound
from penstock.state.lmdb_reader import LmdbReader


def check_archives(data: Path, first: Epoch) -> Iterator[Finding]:
    """Check the file of deployments, and the archives of the code that ran epochs from `first` on."""
    try:
        every = Deployments(data / JOURNAL).every()
    except Corrupt as error:
        yield unrecoverable(str(error), f"{JOURNAL}/{NAME}")
        return
    archives = Archives(data)
    for name in sorted(needed_archives(every, first)):
        try:
            archives.read(name)
        except Corrupt as error:
            yield unrecoverable(str(error), f"{ARCHIVES}/{archives.path_of(name).name}")


_COLUMNS = ("request_id", "error", "reply")


def check_keys(data: Path) -> Iterator[Finding]:
    """Check that the file of keys can be read, if there is one."""
    key_file = KeyFile(data / SUBJECT_KEYS)
    if not key_file.path.exists():
        return  # `DataDirectory` refuses a journal with personal data then
    try:
        key_file.tree()
    except Corrupt:
        what = "the keys of personal data are damaged"
        yield Finding(what, SUBJECT_KEYS, Remedy.BACKUP, KEYS_REMEDY)


def check_certificates(data: Path, journal: Journal) -> Iterator[Finding]:
    """Check that the file of certificates has those of the journal, and one for each destroyed key.

    Raises:
        Corrupt: The journal is damaged.
    """
    erasures, key_file = Erasures(data), KeyFile(data / SUBJECT_KEYS)
    try:
        destroyed = key_file.keys().erasures() if key_file.path.exists() else 0
    except Corrupt:
        destroyed = 0  # `check_keys` reports it
    wanted = certificates_in(journal)
    try:
        stored = erasures.every(journal.identity, newest_epoch(journal))
    except Corrupt:
        what = "the certificates of erasures are damaged"
        finding = unrecoverable(what, ERASURES)
        how = f"{finding.how}; then penstock verify APP --repair adds the certificates that only the journal has"
        yield msgspec.structs.replace(finding, how=how)
        return
    if missing := [each.subject for each in wanted if each not in stored]:
        what = f"{len(missing)} erasures of the journal have no certificate, for example that of {missing[0]}"
        how = f"penstock verify APP --repair writes them again, from the journal; without them an older copy of {SUBJECT_KEYS} "
        yield rebuildable(what, ERASURES, f"{how}brings the persons back")
    elif len(stored) < destroyed:
        what = f"{destroyed - len(stored)} destroyed keys have no certificate"
        why = (
            f"{SUBJECT_KEYS} is newer than this directory, or {ERASURES} was removed: then put the file of the newest backup "
            f"back. Use no older copy of {SUBJECT_KEYS} here: it brings the persons back"
        )
        yield harmless(what, ERASURES, why)


def certificates_in(journal: Journal) -> list[Certificate]:
    """Return the certificates of all erasures that the journal holds, in order."""
    last = journal.last()
    if last is None:
        return []
    certificates: list[Certificate] = []
    for _, table in journal.rows(PartKind.TRANSACTIONS, BEFORE_FIRST, last.epoch, _COLUMNS):
        is_order = pc.starts_with(table["request_id"], control_id(ORDER, ""))
        done = table.filter(pc.and_(is_order, pc.is_null(table["error"])))
        certificates += [
            msgspec.msgpack.decode(reply, type=Certificate) for reply in done["reply"].to_pylist()
        ]
    return certificates


_CLEAN: Final = "clean"

StateAt = Callable[[Epoch], dict[EntityKey, bytes]]
"""Returns all entities after an epoch, encoded."""


class _StoreContent(NamedTuple):
    """A store's metadata, and the digest of its entities."""

    metadata: record.Metadata
    digest: str


def check_states(data: Path, journal: Journal, state_at: StateAt) -> Iterator[Finding]:
    """Check every store that the next start will use.

    Args:
        state_at: Computes the expected state.

    Raises:
        Corrupt: The journal is damaged.
    """
    expected: dict[tuple[Epoch, int], dict[int, str]] = {}
    for path in sorted((data / STATE).glob("partition-*")):
        where = f"{STATE}/{path.name}"
        if not (path / "data.mdb").exists():
            continue
        if _is_stale(path):
            yield harmless("it was not closed before the machine was restarted", where)
        elif not is_sound(path, boot_id()):
            yield harmless("it cannot be read", where)
        elif (content := _read(path)) is not None:
            yield from _compare(content, journal, state_at, expected, where)


def _compare(
    content: _StoreContent,
    journal: Journal,
    state_at: StateAt,
    expected: dict[tuple[Epoch, int], dict[int, str]],
    where: str,
) -> Iterator[Finding]:
    """Compare a store with the journal; `expected` caches digests by epoch and partition count."""
    if (mismatch := _mismatch(content.metadata, journal)) is not None:
        yield harmless(mismatch, where)
        return
    epoch, partitions = content.metadata.epoch, content.metadata.partitions
    if (epoch, partitions) not in expected:
        state = {} if epoch == BEFORE_FIRST else state_at(epoch)
        expected[epoch, partitions] = _digests(state, partitions)
    if content.digest != expected[epoch, partitions][content.metadata.partition]:
        yield rebuildable(f"it differs from the journal's state after epoch {epoch}", where)


def _is_stale(path: Path) -> bool:
    try:
        return (path / "life").read_text() not in (boot_id(), _CLEAN)
    except FileNotFoundError:
        return True


def _read(path: Path) -> _StoreContent | None:
    """Read a store; return None if it is empty, or is removed during the check."""
    environment = environments.attach(path, boot_id())
    try:
        txn = environment.begin_read()
        try:
            stored = txn.get(record.METADATA_KEY)
            if stored is None:
                return None
            metadata = record.unseal_metadata(stored)
            items = LmdbReader(txn, metadata.epoch, path).items()
            return _StoreContent(metadata, digest_of_items(items))
        finally:
            environment.end_read(txn)
    except Corrupt:
        return None  # another process has removed it
    finally:
        environments.detach(environment)


def _mismatch(metadata: record.Metadata, journal: Journal) -> str | None:
    if metadata.journal_identity != journal.identity:
        return "it was built from another journal"
    if metadata.epoch > newest_epoch(journal):
        return f"it is at epoch {metadata.epoch}, which the journal does not have"
    return None


def _digests(state: dict[EntityKey, bytes], partitions: int) -> dict[int, str]:
    """Return the expected digest of each partition's store."""
    states: dict[int, dict[EntityKey, bytes]] = {number: {} for number in range(partitions)}
    for key, data in state.items():
        states[partition_of(bucket_of(key), partitions)][key] = data
    return {number: digest_of_mapping(entities) for number, entities in states.items()}


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
