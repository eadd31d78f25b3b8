"""`DataDirectory`: the files of an application, and the only way to open them.

No process opens the journal of an application with code whose classes cannot read the stored entities.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import msgspec

from penstock.base.ids import Epoch, Lsn
from penstock.base.subject_keys import SubjectKeys
from penstock.engine.built_indexes import settle_places
from penstock.errors import ConfigError, Fenced, LogUnavailable
from penstock.files import durable, private
from penstock.files.key_file import KEYS_REMEDY, KeyFile
from penstock.files.key_service import PLAIN
from penstock.files.layout import DRIVER_LOCK, HELD_STATE, LOG, LOG_NOTE, STATE, SUBJECT_KEYS
from penstock.files.lock import Claimed, claim
from penstock.files.roots import journal_root, shared_root, snapshots_root
from penstock.files.shared_root import SharedRoot
from penstock.journal.api import Journal, newest_epoch
from penstock.journal.delta import DeltaJournal, app_of
from penstock.journal.deployments import Deployments
from penstock.log.api import Log
from penstock.log.kafka_config import EMBEDDED, KAFKA, KafkaConfig, TopicPlace
from penstock.log.sqlite import SqliteLog
from penstock.model.application import App
from penstock.model.shape import is_personal
from penstock.model.versions.removed_class import learn_removed
from penstock.model.versions.schema_change import SchemaChange
from penstock.model.versions.waiting_types import waiting_types
from penstock.process import log_host
from penstock.process.clock_jumps import note_jump
from penstock.process.erasures import Erasures
from penstock.process.presence import boot_id
from penstock.state.stores import Elsewhere, Stores

_log = logging.getLogger(__name__)


class _LogOfHost:
    """The log as this host has it, for a process that only follows the journal; opened at the first wait."""

    def __init__(self, directory: "DataDirectory") -> None:
        self._directory = directory
        self._opening = threading.Lock()
        self._log: Log | None = None
        self._process = 0

    def wait(self, after: Lsn, timeout_ms: int) -> Lsn:
        """Wait until it has records behind a position; see `Log.wait`.

        Raises:
            LogUnavailable: This host has no log, or cannot read it.
        """
        with self._opening:
            if self._log is None or self._process != os.getpid():
                try:
                    self._log, self._process = self._directory.open_log(), os.getpid()
                except ConfigError as error:
                    raise LogUnavailable(str(error)) from error
            log = self._log
        return log.wait(after, timeout_ms)

    def close(self) -> None:
        """Close it."""
        with self._opening:
            if self._log is not None and self._process == os.getpid():
                self._log.close()


class LogLimits(Protocol):
    """The settings of a process that appends to the log; `Config` has them."""

    @property
    def record_bytes_max(self) -> int:
        """The most bytes of one request."""

    @property
    def retention_s(self) -> int:
        """The seconds for which a request id stays known."""

    @property
    def log(self) -> str:
        """Where the log lies; empty: as it is."""

    @property
    def kafka(self) -> KafkaConfig:
        """The settings of a log in Kafka."""


class DataDirectory(msgspec.Struct, frozen=True):
    """The data directory of one application.

    Attributes:
        path: The directory, which need not exist: the folder of this host. If the shared root is in an object store, it
            has only the data of the host.
    """

    path: Path

    @property
    def shared(self) -> SharedRoot:
        """The shared root: the directory itself, or a place in an object store."""
        return shared_root(self.path)

    @property
    def journal_root(self) -> SharedRoot:
        """The root of the journal."""
        return journal_root(self.path)

    @property
    def log_path(self) -> Path:
        """The file of the log."""
        return self.path / LOG

    @property
    def _key_file(self) -> KeyFile:
        return KeyFile(self.path / SUBJECT_KEYS)

    @property
    def app_name(self) -> str | None:
        """The name of the application whose journal lies here; None before the first start."""
        return app_of(self.journal_root)

    def create(self, key_service: str = "") -> None:
        """Create the directory, durably and private; see `files.private`.

        Args:
            key_service: The service that encrypts the keys of personal data; `plain` for none; empty for that which
                they have. With a service, no file ever has the keys of a new directory in readable form.

        Raises:
            Corrupt: The file of keys is damaged.
            JournalUnavailable: The disk is full or fails, or the key service does.
        """
        private.create(self.path)
        file, service = self._key_file, "" if key_service == PLAIN else key_service
        if service and not file.exists:
            file.create(service)
        if key_service and file.exists and file.use_service(service):
            _log.info("%s is encrypted by %s", file.path, service or "no key service any more")

    def claim(self) -> int:
        """Lock the directory for a driver; the lock refuses a second driver before it changes anything.

        Where file locks do not work (another host on a shared file system), the journal fences the
        second driver at its first commit.

        Returns:
            A descriptor. The lock is free again when it is closed, or when this process ends.

        Raises:
            Fenced: Another driver has the lock.
        """
        try:
            return claim(self.path / DRIVER_LOCK)
        except Claimed as error:
            raise Fenced(
                f"another driver (process {error.holder}) runs the application in {self.path}; "
                "stop it, or choose another data directory"
            ) from error

    def check_app(self, app: App) -> list[SchemaChange]:
        """Refuse an application that does not fit the journal; nothing is created.

        A process that writes calls this first, before it opens or starts anything.

        Returns:
            The compatible changes of classes, which a driver will deploy.

        Raises:
            Corrupt: The journal is damaged.
        """
        if self.app_name is None:
            return []
        with closing(self.open_journal(app)) as journal:
            self.check_waiting(app, journal)
            return journal.schema_changes()

    def check_waiting(self, app: App, journal: Journal) -> None:
        """Refuse an application that would read waiting values with another meaning.

        Raises:
            ClassChanged: It would; the message names the types, and a remedy.
        """
        following = Epoch(newest_epoch(journal) + 1)
        Deployments(self.journal_root).check(following, waiting_types(app))

    def open_journal(
        self, app: App, secret: bytes | None = None, dropped: Collection[str] = ()
    ) -> DeltaJournal:
        """Open the journal of an application; create it if it does not exist.

        Args:
            secret: The secret of a new journal; None draws one.
            dropped: The stored classes that the application may lack; those that a deployment has dropped need no mention.

        Returns:
            The journal, which the caller closes.

        Raises:
            ClassChanged: A class cannot read its stored entities; nothing was written.
            Corrupt: The journal is damaged.
        """
        journal = DeltaJournal(self.journal_root, app.name, app.stored, secret, dropped)
        if secret is not None:
            # The journal continues another one, from which the application has its removed classes and its keys.
            journal.keys = lambda: app.keys
            return journal
        try:
            learn_removed(app, journal.schemas())
            if app.indexed:  # whose classes know their versions now
                following = Epoch(newest_epoch(journal) + 1)
                settle_places(app, Deployments(self.journal_root).indexes_at(following))
            if app.is_personal:
                app.use_keys(self._keys(journal))
            self._complete_erasures(journal)
        except BaseException:
            journal.close()
            raise
        if self.shared.is_far:
            log = _LogOfHost(self)
            journal.await_record, journal.on_close = log.wait, log.close
        file = self._key_file
        keys = file.keys()
        journal.keys = lambda: keys if file.exists else None  # a deployment may draw them
        return journal

    def _keys(self, journal: DeltaJournal) -> SubjectKeys:
        """Return the keys of personal data; they are drawn before the first row of a personal class."""
        file = self._key_file
        if not file.exists:
            stored = [name for name, shape in journal.shapes().items() if is_personal(shape)]
            if stored:
                raise ConfigError(
                    f"{file.path} is missing: it holds the keys of {', '.join(stored)}; {KEYS_REMEDY}"
                )
            file.create()
        return file.keys()

    def _complete_erasures(self, journal: DeltaJournal) -> None:
        """Destroy the keys of erased persons that the file of keys still has, because it is older than the erasure."""
        erasures = Erasures(self.path)
        if not erasures.exist or not self._key_file.exists:
            return
        erasures.complete(journal.identity, newest_epoch(journal))

    def open_journal_of(self, app_name: str) -> DeltaJournal:
        """Open the journal for a reader that needs no code of the application; see `open_journal`."""
        return DeltaJournal(self.journal_root, app_name)

    def open_log(self, limits: LogLimits | None = None) -> SqliteLog:
        """Open the log; create it if it does not exist. A process without `limits` must not append.

        Raises:
            ConfigError: The shared root is in an object store, and the log is on another host.
            Corrupt: The log is damaged.
        """
        if self.has_log_in_kafka(limits):
            return self._open_copy(limits)
        is_far = self.shared.is_far
        if is_far:
            log_host.check_here(self.path)
        log = self.new_log(limits)
        if is_far and limits is not None:
            # Before the first append: a log that has something to lose must not move.
            log_host.settle(self.path, is_settled=False)
        return log

    def check_log_here(self) -> None:
        """Refuse to use the file of an embedded log on a host that does not have it.

        Raises:
            ConfigError: The shared root is in an object store, and the log is on another host.
        """
        if self.shared.is_far and not self.has_log_in_kafka(None):
            log_host.check_here(self.path)

    def create_log(self) -> None:
        """Create the log, if it does not exist."""
        self.new_log().close()

    def new_log(self, limits: LogLimits | None = None) -> SqliteLog:
        """Open the log as `open_log`, also if it is not the application's yet."""
        if limits is None:
            return SqliteLog(self.log_path)
        return SqliteLog(
            self.log_path,
            record_bytes_max=limits.record_bytes_max,
            retention_s=limits.retention_s,
            on_jump=partial(note_jump, self.path),
        )

    def _open_copy(self, limits: LogLimits | None) -> SqliteLog:
        """Open the copy of a log in Kafka."""
        if limits is None:
            log = _log_place().open_copy(self.path, None)
        else:
            more = {"record_bytes_max": limits.record_bytes_max}
            log = _log_place().open_copy(
                self.path, limits, on_jump=partial(note_jump, self.path), **more
            )
        return cast("SqliteLog", log)

    def prepare_log(self, limits: LogLimits) -> None:
        """Check that a log in Kafka can be used, before any process starts; see `log_place`. An embedded one needs nothing."""
        if self.has_log_in_kafka(limits):
            self.create()
            _log_place().prepare(self.path, limits)

    def has_log_in_kafka(self, limits: LogLimits | None) -> bool:
        """Say whether the log is in Kafka, or the settings want it there."""
        is_wanted = limits is not None and limits.log.startswith(KAFKA)
        return is_wanted or shared_root(self.path).has(LOG_NOTE)

    def resting(self, journal: DeltaJournal, log: Log) -> DeltaJournal:
        """Return a journal whose followers look seldom while the log, to which this process appends, has no record for an epoch."""
        if self.shared.is_far:
            journal.await_record = log.wait
        return journal

    def log_text(self) -> str:
        """Return where the log lies, for people.

        Raises:
            JournalUnavailable: The object store does not answer.
        """
        with durable.storage("look where the log is"):
            try:
                noted = msgspec.json.decode(self.shared.get(LOG_NOTE))
            except FileNotFoundError:
                place = log_host.host_of_log(self.path) if self.shared.is_far else None
                return f"{EMBEDDED}, in {place or self.path}"
        return str(TopicPlace(noted["servers"], noted["topic"]))

    def keep_log_copy(self, log: SqliteLog) -> None:
        """Keep what a new host needs of a log in Kafka, and delete from the topic what none needs; see `log_place`."""
        if self.has_log_in_kafka(None):
            _log_place().keep_copy(self.path, log)

    def log_lag(self, limits: LogLimits) -> Callable[[], int] | None:
        """Return a function that says how many messages of the topic the copy of this host lacks; None with an embedded log.

        The function raises as `open_log`, and LogUnavailable if no broker answers.
        """
        if not self.has_log_in_kafka(limits):
            return None
        return cast("Callable[[], int]", _log_place().LogLag(self.path, limits).messages)

    def open_stores(
        self,
        journal: Journal,
        partitions: int = 1,
        folder: Path | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> Stores:
        """Return the stores of the state, which the journal and its snapshots feed.

        Args:
            partitions: The number of stores, for a caller that does not follow the commits.
            folder: The root of this host; None: the directory.
            elsewhere: The partitions of other hosts, for the tasks of a host that holds a part of the state. Its stores have a
                folder of their own, because each other process of the host reads the whole.
        """
        return Stores(
            (folder or self.path) / (STATE if elsewhere is None else HELD_STATE),
            journal,
            partitions,
            boot_id=boot_id(),
            snapshots=snapshots_root(self.path),
            elsewhere=elsewhere,
        )

    def held_partitions(self, journal: Journal, partitions: int) -> dict[int, Epoch]:
        """Return the epochs of the partitions that the tasks of this host hold, where it holds a part of the state; else none."""
        folder = self.path / HELD_STATE
        if not folder.is_dir():
            return {}
        with closing(Stores(folder, journal, partitions, boot_id=boot_id())) as stores:
            return stores.held()


def _log_place() -> ModuleType:
    """Return the module of logs in Kafka, which needs an extra.

    Raises:
        ConfigError: The extra is not installed.
    """
    try:
        return import_module("penstock.process.log_place")
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise ConfigError(
            "the log is in Kafka, and this installation lacks its client: pip install 'penstock[cluster]'"
        ) from error
