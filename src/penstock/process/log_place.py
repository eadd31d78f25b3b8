"""Where the log of an application lies: in a file of its data directory, or in a topic of Kafka that a note names.

The note (`log.json`) is in the shared root, so that all hosts use one topic, and no start by mistake another one. Each host
has a copy of the log, under the name of the embedded one: `new_copy` makes it from the newest copy in the shared root
(`log/OFFSET.sqlite`), and the topic gives the rest. A log that moves from a file into a topic is the copy at offset 0.
"""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from penstock.errors import ConfigError, Corrupt
from penstock.files import durable
from penstock.files.layout import LOG, LOG_COPIES, LOG_NOTE
from penstock.files.lock import locked_directory
from penstock.files.roots import shared_root
from penstock.files.shared_root import SharedRoot
from penstock.log.copy_prefix import copy_log
from penstock.log.database import as_copy, is_copy, new_copy
from penstock.log.kafka import Following, KafkaLog
from penstock.log.kafka_config import EMBEDDED, KafkaConfig, TopicPlace, topic_of
from penstock.log.sqlite import SqliteLog
from penstock.log.topic import Topic
from penstock.process import log_host, presence

FORMER_LOG: Final = "embedded-log.sqlite"
"""The name that the embedded log gets when its place is taken by a copy."""

_SUFFIX: Final = ".sqlite"
_DIGITS: Final = 20
_IDENTITY_BYTES: Final = 8

COPY_MESSAGES: Final = 100_000
COPY_S: Final = 86_400
"""Another copy is put into the shared root after so many messages of the topic, or so many seconds."""


class KafkaSettings(Protocol):
    """The settings of a process that uses a log in Kafka; `Config` has them."""

    @property
    def log(self) -> str:
        """The setting `log`."""

    @property
    def kafka(self) -> KafkaConfig:
        """The settings of the topic."""

    @property
    def retention_s(self) -> int:
        """The seconds for which a request id stays known."""


class LogNote(msgspec.Struct, frozen=True):
    """The topic of a log.

    Attributes:
        servers: The brokers, where a process that no setting tells others begins to ask.
        topic_id: The id that the topic got when it was created.
        log: The identity of the log, in each of its messages; hexadecimal.
        retention_s: The seconds for which request ids stay known; one number, so that all hosts forget alike.
    """

    servers: str
    topic: str
    topic_id: str
    log: str
    retention_s: int

    def following(self, settings: KafkaSettings) -> Following:
        """Return the topic that a process of these settings follows.

        Raises:
            ConfigError: The settings contradict the note.
        """
        place = TopicPlace(self.servers, self.topic)
        if settings.log == EMBEDDED:
            raise ConfigError(
                f"log = {EMBEDDED}: the log of this data directory is in {place}; to leave Kafka, restore a backup into another "
                "directory, whose log is embedded"
            )
        if settings.log:
            given = topic_of(settings.log)
            if given.topic != self.topic:
                raise ConfigError(
                    f"log = {settings.log}: the log of this data directory is in {place}; omit the setting, or restore a "
                    "backup into another directory, which may begin in another topic"
                )
            place = given
        if settings.retention_s != self.retention_s:
            raise ConfigError(
                f"retention_s = {settings.retention_s}: the log in {place} began with {self.retention_s}, and all hosts must "
                f"forget request ids alike; set retention_s = {self.retention_s}"
            )
        return Following(
            place, settings.kafka, self.topic_id, bytes.fromhex(self.log), self.retention_s
        )


def note_in(data: Path) -> LogNote | None:
    """Return the note of a data directory; None if its log is embedded.

    Raises:
        Corrupt: The note cannot be read.
    """
    try:
        return msgspec.json.decode(shared_root(data).get(LOG_NOTE), type=LogNote)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{data / LOG_NOTE}: {error}; restore it from another host") from error


def prepare(data: Path, settings: KafkaSettings) -> None:
    """Check that a log in Kafka can be used, before any process starts; the first time, let it begin there.

    Raises:
        ConfigError: The settings, the credentials or the topic are wrong.
        Diverged: The topic has lost requests.
        LogUnavailable: No broker answers.
    """
    with closing(open_copy(data, settings)) as log:
        log.connect()


def adopt(data: Path, settings: KafkaSettings) -> LogNote:
    """Let the log of a data directory begin in a topic, with the content of the embedded log, and return the note.

    Raises:
        ConfigError: The topic cannot hold a log, holds another one, or processes use the embedded log.
        LogUnavailable: No broker answers.
    """
    place = topic_of(settings.log)
    if shared_root(data).is_far:
        log_host.check_here(data)  # a topic that begins empty would contradict the journal
    with closing(Topic(place, settings.kafka)) as topic:
        identity = topic.identity(settings.retention_s)
        if identity is None:
            topic.create()
            identity = topic.identity(settings.retention_s)
        assert identity is not None, "the topic exists now"
        holds = topic.ends().high > 0
    if (note := note_in(data)) is not None:  # another process was faster
        return note
    if holds:
        raise ConfigError(
            f"{place} holds messages, but the log of {data} has never been there; name a topic that is empty or does not exist"
        )
    root, log = shared_root(data), secrets.token_hex(_IDENTITY_BYTES)
    note = LogNote(place.servers, place.topic, identity, log, settings.retention_s)
    with durable.storage(f"noting {place} in {root}"), locked_directory(data):
        if (data / LOG).exists():
            _refuse_users(data)
            root.make_folders(LOG_COPIES)
            with root.writing(_name_of(0)) as path:
                copy_log(data / LOG, path)
                as_copy(path)
        if not root.create(LOG_NOTE, msgspec.json.encode(note)):
            return note_in(data) or note
    with closing(_opened(data, note, settings)) as opened:
        opened.check_writable()  # the first message says whose topic it is
    return note


def open_copy(data: Path, settings: KafkaSettings | None, **more: Any) -> KafkaLog:
    """Open the copy of this host; make it if it does not exist.

    Args:
        settings: None for a process that reads only the copy of this host.
        more: Further arguments of `KafkaLog`.

    Raises:
        ConfigError: The settings contradict the note, or the topic cannot hold a log.
    """
    note = note_in(data)
    if note is None:
        assert settings is not None, "the note exists, or the settings name a topic"
        note = adopt(data, settings)
    return _opened(data, note, settings, **more)


class LogLag:
    """How far the copy of this host is behind its topic; for one thread."""

    def __init__(self, data: Path, settings: KafkaSettings) -> None:
        self._data = data
        self._settings = settings
        self._opens: tuple[LogNote, Topic] | None = None

    def messages(self) -> int:
        """Return the number of messages that the copy lacks.

        Raises:
            ConfigError: The settings contradict the note.
            LogUnavailable: No broker answers.
        """
        if self._opens is None:  # the note never changes, and a question for it may be paid for
            note = note_in(self._data)
            assert note is not None, "the log is in Kafka"
            self._opens = note, Topic(note.following(self._settings).place, self._settings.kafka)
        note, topic = self._opens
        end = topic.ends().high  # first, so that the difference is never negative for long
        with closing(_opened(self._data, note, None)) as log:
            return max(0, end - log.reached().next)


def _opened(data: Path, note: LogNote, settings: KafkaSettings | None, **more: Any) -> KafkaLog:
    following = None if settings is None else note.following(settings)
    path = data / LOG
    if not is_copy(path):
        with durable.storage(f"making {path}"), locked_directory(data):
            if not is_copy(path):
                _make_copy(shared_root(data), path)
    return KafkaLog(path, following, retention_s=note.retention_s, **more)


def keep_copy(data: Path, log: SqliteLog) -> None:
    """Put another copy of the log into the shared root if the newest one is old, and delete the messages that no host needs any more.

    The topic keeps the messages behind the second newest copy, for a host that is a little late.
    """
    assert isinstance(log, KafkaLog), "the directory has a note"
    root, reached = shared_root(data), log.reached().next
    offsets = sorted(_offsets(root))
    newest = offsets[-1] if offsets else 0
    is_old = bool(offsets) and root.age_s(_name_of(newest)) >= COPY_S
    if reached - newest < (1 if is_old else COPY_MESSAGES):
        return
    with durable.storage(f"copying the log to {root}"):
        root.make_folders(LOG_COPIES)
        with root.writing(_name_of(reached)) as path:
            log.copy_to(path)
        for offset in offsets[:-1]:
            root.remove(_name_of(offset))
    log.forget_messages(newest)


def _make_copy(root: SharedRoot, path: Path) -> None:
    """Make the copy of a host: from the newest one in the shared root, or empty."""
    for former in path.parent.glob(f"{path.name}*"):
        if former.name in (path.name, f"{path.name}-wal"):
            # It is in the copy at offset 0, unless somebody has put it here meanwhile.
            former.rename(former.with_name(former.name.replace(path.name, FORMER_LOG)))
        else:
            former.unlink()
    temporary = durable.temporary_of(path)
    try:
        offsets = list(_offsets(root))
        if offsets:
            with root.reading(_name_of(max(offsets))) as kept:
                shutil.copyfile(kept, temporary)
        else:
            new_copy(temporary)
        durable.sync(temporary)
        temporary.rename(path)
        durable.sync_directory(path.parent)
    finally:
        for rest in path.parent.glob(f"{temporary.name}*"):
            rest.unlink()


def _refuse_users(data: Path) -> None:
    for role in presence.ROLES:
        for process in presence.find(data, role):
            if process.pid != os.getpid():
                raise ConfigError(
                    f"process {process.pid} ({role}) uses the embedded log of {data}; stop it before the log moves into a topic"
                )


def _name_of(offset: int) -> str:
    return f"{LOG_COPIES}/{offset:0{_DIGITS}}{_SUFFIX}"


def _offsets(root: SharedRoot) -> Iterator[int]:
    """Yield the offsets behind which the copies in the shared root go on."""
    for name in root.names(LOG_COPIES):
        if name.endswith(_SUFFIX) and name.removesuffix(_SUFFIX).isdigit():
            yield int(name.removesuffix(_SUFFIX))
