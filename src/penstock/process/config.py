"""`Config`: every setting of a running application, in one frozen, validated value.

A setting comes from a TOML file, from the environment (`PENSTOCK_PARTITIONS`) or from a flag, the
later ones winning. `load_config` reports every wrong setting at once, each with its
source, or returns a valid configuration. It reads one file; the caller passes environment and flags.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from penstock.base.setting import Meaning, meaning_of, setting
from penstock.engine.limits import Limits
from penstock.errors import ConfigError
from penstock.files.key_service import PLAIN, is_service
from penstock.files.roots import host_folder, store_of
from penstock.files.shared_root import SCHEME, place_of
from penstock.log.kafka_config import (
    EMBEDDED,
    FILE_SUFFIX,
    KAFKA_TABLE,
    OWN_OF_VIEWS,
    KafkaConfig,
    is_secret,
    refuse_own,
    topic_of,
)
from penstock.model.request import RECORD_BYTES_MAX
from penstock.process import logs

T = TypeVar("T")

FILE_NAME: Final = "penstock.toml"
PREFIX: Final = "PENSTOCK_"

ALL_HOSTS: Final = "all"
"""The value of `copies` with which each host holds the whole state."""

_COPIES_MAX: Final = 1_024

RECORD_SLACK: Final = 64 << 10
"""Bytes by which a request in the log may exceed its HTTP body: path, names, encoding."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of the gateways: HTTP in, replies out. Sizes are bytes."""

    host: str = setting(
        "127.0.0.1",
        "address on which gateways listen; other addresses than loopback need keys, `gateway.jwks` or "
        "`gateway.open`",
    )
    port: int = setting(
        8_000, "port of the gateways; with `penstock run`, 0 takes a free port", at_most=65_535
    )
    processes: int = setting(1, "number of gateway processes", at_least=1, at_most=64)
    body_bytes_max: int = setting(
        512 << 10,
        "largest body of one HTTP request; at least 65536 below `record_bytes_max`",
        at_least=1_024,
        at_most=1 << 30,
    )
    header_bytes_max: int = setting(
        32 << 10, "largest size of all headers of one HTTP request", at_least=8_192, at_most=1 << 20
    )
    depth_max: int = setting(64, "deepest nesting of JSON", at_least=4, at_most=512)
    key_bytes_max: int = setting(
        1_024, "largest key of an entity, and largest request id", at_least=16, at_most=64 << 10
    )
    limits: str = setting(
        "", "limits on requests, separated by commas, in addition to those of the application"
    )
    connections_max: int = setting(
        10_000,
        "open connections of a gateway; fewer if the process may open few files. Further connections wait, and "
        "useless ones end",
        at_least=16,
        at_most=1_000_000,
    )
    waiting_max: int = setting(
        20_000,
        "requests that a gateway waits for at a time; further requests get 429 with `Retry-After`",
        at_least=1,
    )
    pipeline_window: int = setting(
        2_000, "requests under way of one pipelined connection", at_least=1, at_most=1_000_000
    )
    window_ms: int = setting(
        100,
        "if the log holds more requests than one epoch of this time processes, further ones wait for the turn of "
        "their principal; 0: they are appended at once",
    )
    lag_max: int = setting(
        1_000_000,
        "requests that may wait in the log; further requests get 429 with `Retry-After`",
        at_least=1,
    )
    reply_timeout_ms: int = setting(
        300_000, "longest time that a call waits for its reply; then it gets 504", at_least=1
    )
    receive_timeout_ms: int = setting(
        30_000, "longest time in which a client must have sent its request", at_least=1
    )
    drain_ms: int = setting(
        30_000, "longest time that a stopping gateway waits for the replies of accepted requests"
    )
    readers: int = setting(
        2,
        "processes of each gateway that answer calls of `@readonly` handlers, and that read arguments whose "
        "classes have code of their own (`__post_init__`, validators). With 0, such calls are requests in the "
        "log, and such code runs in the gateway",
        at_most=64,
    )
    tls_certificate: Path = setting(
        Path(), "PEM file; with `gateway.tls_key` gateways speak HTTPS only"
    )
    tls_key: Path = setting(Path(), "PEM file, PKCS #8")
    secrets: Path = setting(
        Path(),
        "file with a line NAME=value for each secret of a sender of webhooks (`signed_by`); it may change at any time",
    )
    jwks: Path = setting(
        Path(), "JSON Web Key Set; its keys sign the bearer tokens that are accepted"
    )
    jwt_algorithms: str = setting("RS256,ES256,EdDSA", "algorithms of signatures that are accepted")
    jwt_issuer: str = setting("", "the only `iss` that is accepted; empty accepts any")
    jwt_claims: str = setting(
        "",
        "claims of a token that handlers see in principal().claims, separated by commas; the log keeps them, so name no personal data",
    )
    jwt_audience: str = setting(
        "", "the value that `aud` must name; empty accepts tokens without `aud`"
    )
    cors_origins: str = setting("", "origins that browsers may call from, separated by commas")
    open: int = setting(0, "1: every caller that reaches the port has access", at_most=1)


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """Settings of the SQL view."""

    memory_mb: int = setting(
        1_024,
        "memory for the view's cache of its file, and memory limit of each query",
        at_least=64,
    )
    threads: int = setting(2, "threads of a query", at_least=1, at_most=1_024)
    time_ms: int = setting(30_000, "longest time in which a query waits and runs", at_least=1)
    rows_max: int = setting(1_000_000, "most rows of an answer", at_least=1)
    requests_max: int = setting(
        1_000_000,
        "newest requests, replies and epochs that the view keeps, and newest events of each stream",
    )
    tables_percent: int = setting(
        25,
        "most of the time, in percent, that the queries of the SQL tables of one view take; 25 is a quarter of a core",
        at_least=1,
        at_most=100,
    )


@dataclass(frozen=True, slots=True)
class EffectsConfig:
    """Settings of the process that calls effects."""

    secrets: Path = setting(
        Path(),
        "file with a line NAME=value for each secret that `penstock.secret` returns; the effect process alone reads it, again whenever it "
        "has changed",
    )
    at_once: int = setting(
        8,
        "calls of one `def` effect at a time, each in a process of its own, where `@limit` says nothing",
        at_least=1,
        at_most=1_000,
    )
    memory_mb: int = setting(
        512,
        "memory that a process may take for effects, beyond that of the application",
        at_least=16,
    )


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Settings of the target of one view, `views.NAME.url` and so on.

    Attributes:
        url: The address of the target, with its password. It is never printed.
        url_file: A file that contains the address.
        properties: Properties of librdkafka by their names, for a target in Kafka. They may be secrets, so they are never
            printed.
    """

    url: str = field(default="", repr=False)
    url_file: Path = Path()
    properties: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def address(self) -> str:
        """Return the address; empty if there is none.

        Raises:
            ConfigError: The file with the address cannot be read.
        """
        return _address(self.url, self.url_file)


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Settings of the database of one stream of changes, `captures.NAME.url` and so on.

    Attributes:
        url: The address of the database, with its password. It is never printed.
        url_file: A file that contains the address.
        slot: The name of the replication slot; empty: `penstock_APP_NAME`.
        publication: The name of the publication; empty: that of the slot.
    """

    url: str = field(default="", repr=False)
    url_file: Path = Path()
    slot: str = ""
    publication: str = ""

    def address(self) -> str:
        """Return the address; empty if there is none; raises as `TargetSettings.address`."""
        return _address(self.url, self.url_file)


def _address(url: str, url_file: Path) -> str:
    if url or url_file == Path():
        return url
    try:
        return url_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"url_file = {url_file}: {reason}") from error


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Settings of snapshots, merging and forgetting.

    A snapshot is taken when one of its three bounds is reached and something has changed; 0 switches
    a bound off. Epochs are forgotten when one of the three `keep` bounds is exceeded and no reader
    needs them; 0 switches a bound off.
    """

    snapshot_epochs: int = setting(
        5_000, "a snapshot is taken after this number of epochs; 0: never for this reason"
    )
    snapshot_s: int = setting(
        900,
        "a snapshot is taken after this number of seconds, if an entity changed; 0: never for this reason",
    )
    snapshot_requests: int = setting(
        1_000_000, "a snapshot is taken after this number of requests; 0: never for this reason"
    )
    snapshots_max: int = setting(
        5,
        "snapshots that are kept, so that queries of the past are fast",
        at_least=2,
        at_most=1_000,
    )
    keep_epochs: int = setting(0, "epochs that the journal keeps; 0: all")
    keep_s: int = setting(0, "seconds for which the journal keeps an epoch; 0: no limit")
    keep_mb: int = setting(0, "megabytes of epochs that the journal keeps; 0: all")
    views_s: int = setting(
        86_400,
        "seconds for which an epoch stays beyond that because a view of a stream has not shown it; 0: no limit",
    )
    views_mb: int = setting(1_024, "megabytes of epochs that stay for that; 0: no limit")
    merge_epochs: int = setting(
        2_000,
        "number of older epochs whose small files are merged into a segment",
        at_least=2,
        at_most=100_000,
    )
    grace_s: int = setting(
        600,
        "seconds to keep merged source files after compaction, so that open Delta readers do not fail",
    )
    nice: int = setting(
        19,
        "priority of the maintenance process: 0 is that of all other processes, 19 the lowest",
        at_most=19,
    )


@dataclass(frozen=True, slots=True)
class PriceConfig:
    """What an operator pays, for the money of a day that the console and the metrics show.

    The defaults are those of Amazon S3 Standard in us-east-1, November 2026: $0.005 for 1,000 PUT, COPY, POST and LIST
    requests, $0.0004 for 1,000 GET and all other requests.
    """

    million_puts_cents: int = setting(
        500, "cents for a million writes and listings of the object store"
    )
    million_gets_cents: int = setting(40, "cents for a million reads of the object store")
    host_day_cents: int = setting(0, "cents for a host and a day")


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of an application's processes.

    Attributes:
        data: Directory of the application: log, journal, state, checkpoint. With an object store, the folder of this host.
        store: The object store that `data` names as `s3://BUCKET/PREFIX`; empty if it names a directory. Processes learn it
            from the directory; see `files.roots`.
        limits: The limits of a transaction.
        gateway: The settings of the gateways.
        view: The settings of the SQL view.
        history: The settings of snapshots, merging and forgetting.
        effects: The settings of the process that calls effects.
        kafka: The settings of a log in Kafka.
        prices: What an operator pays.
        views: The settings of the targets of views, by the name of the view; see `target_settings`.
        captures: Those of the databases of streams of changes, by the name of the stream.
    """

    data: Path
    app: str = setting("", "the application of commands that name no other")
    cores: int = setting(
        os.cpu_count() or 1,
        "cores for the tasks of an epoch; with a cluster those of all hosts together",
        at_least=1,
        at_most=1_024,
    )
    partitions: int = setting(
        0, "tasks of a round, and stores of the state, at the first start", at_most=1_024
    )
    auto_partitions: int = setting(
        0,
        "1: the driver changes the number of partitions when cores come or go, or large epochs wait; 0: an operator does",
        at_most=1,
    )
    master: str = setting(
        "",
        "Spark's master URL: `spark://HOST:7077` runs tasks on the hosts of a Spark cluster; empty: all on this host",
    )
    master_secret: Path = setting(
        Path(),
        "file with the secret of the Spark cluster (`spark.authenticate.secret`), which a cluster must have",
    )
    hosts: int = setting(
        1,
        "hosts of the cluster that must have joined before the application starts",
        at_least=1,
        at_most=1_024,
    )
    copies: str = setting(
        "all",
        "hosts of a cluster that hold each part of the state: `all`, or a number, for state that is too large for the disk "
        "of one host",
    )
    host_cores: int = setting(
        0,
        "tasks that `penstock host` lets this host run at a time; 0: as many as it has cores",
        at_most=1_024,
    )
    host_python: str = setting(
        "", "Python of the hosts of a cluster; empty: the path of this Python, on each"
    )
    epoch_records_max: int = setting(10_000, "most records in an epoch", at_least=1)
    epoch_time_ms: int = setting(
        1_000,
        "processor time that the records of an epoch are expected to take at most; 0: only their number and bytes count",
        at_most=60_000,
    )
    epoch_bytes_max: int = setting(64 << 20, "most bytes of request bodies in an epoch", at_least=1)
    epoch_output_bytes_max: int = setting(
        64 << 20,
        "bytes of replies and changes after which an epoch ends early; its other requests belong to the next "
        "epoch",
        at_least=64,
    )
    small_epoch: int = setting(
        1_500,
        "an epoch with at most this number of records runs in one task, unless they need more than 0.1 s",
    )
    large_atom: int = setting(
        0,
        "an epoch with an atom of at least so many events is divided among the partitions by key; 0: none is",
    )
    poll_ms: int = setting(
        50,
        "longest wait for new records before the driver looks whether it must stop",
        at_least=1,
        at_most=60_000,
    )
    batch_ms: int = setting(
        10_000,
        "time for which a micro-batch of Spark stays open and runs one epoch after another; Spark's bookkeeping "
        "happens between two micro-batches",
    )
    resident_task: int = setting(
        1,
        "1: epochs run in resident tasks of Spark, one for each core; 0: each round of an epoch is a Spark job, "
        "which a cluster does not have",
        at_most=1,
    )
    limits: Limits = field(default_factory=Limits)
    log: str = setting(
        "",
        "where requests are appended: `embedded` is a file of the data directory, "
        "`kafka://HOST:PORT[,HOST:PORT…]/TOPIC` a topic for many hosts; empty: as it is, and embedded at the first start",
    )
    record_bytes_max: int = setting(
        RECORD_BYTES_MAX,
        "the log's limit for one request; records that a cascade appends may be larger",
        at_least=1_024,
        at_most=1 << 30,
    )
    retention_s: int = setting(
        7 * 86_400, "seconds for which the log knows a request id, and deduplicates it"
    )
    stuck_s: int = setting(
        30,
        "seconds without progress after which a task is reported; a handler that is within its own limit is not "
        "reported",
        at_least=1,
    )
    driver_memory_mb: int = setting(1_024, "heap of Spark's JVM", at_least=256)
    host_data: Path = setting(
        Path(),
        "folder of this host for an application whose `data` are in an object store (`s3://BUCKET/PREFIX`): log, stores "
        "of the state, scratch files. Empty: a folder in `~/.local/share/penstock` (`$XDG_DATA_HOME`). With a cluster, the "
        "folder of each of its hosts, on a disk of that host, at the same path on each",
    )
    class_archive: int = setting(
        1, "1: Java reads Spark's classes from the class archive; 0: it loads each class", at_most=1
    )
    key_service: str = setting(
        "",
        "`module:name` of the key service that encrypts `subjects.keys`; `plain`: none does; empty: as it is",
    )
    log_format: str = setting(
        "text", "format of the log output on standard error: `text` or `json`", choices=logs.FORMS
    )
    log_level: str = setting(
        "info",
        "lowest level that is logged: `debug`, `info`, `warning`, `error`",
        choices=logs.LEVELS,
    )
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    view: ViewConfig = field(default_factory=ViewConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    effects: EffectsConfig = field(default_factory=EffectsConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    prices: PriceConfig = field(default_factory=PriceConfig)
    views: Mapping[str, TargetSettings] = field(default_factory=dict, hash=False)
    captures: Mapping[str, CaptureSettings] = field(default_factory=dict, hash=False)
    store: str = ""
    fault: str = setting(
        "", "`step@count` kills a process at that step; for tests and demonstrations only"
    )

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: Values cannot be used; the message names all of them with their bounds.
        """
        values = {name: _value_of(self, name) for name in _KINDS}
        complaints = [
            complaint
            for name, value in values.items()
            if (complaint := _range_complaint(name, value)) is not None
        ]
        if str(self.data).startswith(_OF_STORES):
            complaints.append(
                "data: s3://BUCKET/PREFIX is no directory; `load_config` finds the folder of this host"
            )
        # A process that is started by another one gets the folder alone.
        if not (self.store or self.master) and self.host_data not in (Path(), self.data):
            complaints.append(
                "host_data: only an application on a cluster (master), or whose data are in an object store (data = "
                "s3://BUCKET/PREFIX), has a folder on each host"
            )
        if self.log not in ("", EMBEDDED):
            try:
                topic_of(self.log)
            except ConfigError as error:
                complaints.append(str(error))
        if self.gateway.body_bytes_max > self.record_bytes_max - RECORD_SLACK:
            complaints.append(
                f"gateway.body_bytes_max = {self.gateway.body_bytes_max}: must stay "
                f"{RECORD_SLACK} bytes below record_bytes_max = {self.record_bytes_max}, so that "
                "every request of a gateway fits the log"
            )
        complaints += [*self._complaints_of_copies(), *self._complaints_of_cluster()]
        if complaints:
            raise ConfigError(_joined(complaints))
        if self.partitions == 0:
            object.__setattr__(self, "partitions", self.cores)

    def target_settings(self, view: str) -> TargetSettings:
        """Return the settings of the target of a view; a variable of the environment spells its name in its own way."""
        return _named(self.views, view) or TargetSettings()

    def capture_settings(self, stream: str) -> CaptureSettings:
        """Return the settings of the database of a stream of changes."""
        return _named(self.captures, stream) or CaptureSettings()

    def views_without(self, names: Iterable[str]) -> list[str]:
        """Return the names in `views` that no view of an application has.

        Args:
            names: The names of its views.
        """
        return _unknown(self.views, names)

    def captures_without(self, names: Iterable[str]) -> list[str]:
        """Return the names in `captures` that no stream of changes of an application has.

        Args:
            names: The names of these streams.
        """
        return _unknown(self.captures, names)

    @property
    def spark_master(self) -> str:
        """The master URL for Spark: a slot for each core, for maintenance and for each resident task.

        Maintenance has a low priority; in a slot of an epoch it would delay the epoch.
        """
        return self.master or f"local[{self.cores + 1 + self.residents},4]"

    @property
    def residents(self) -> int:
        """The number of resident tasks: one for each core that the tasks of an epoch can use.

        With another local master there are none, because it may have no slots for them.
        """
        if self.is_cluster:
            return self.cores
        if self.resident_task == 0 or self.master:
            return 0
        return self.cores if self.auto_partitions else min(self.cores, self.partitions)

    @property
    def is_cluster(self) -> bool:
        """Whether tasks run on the hosts of a Spark cluster."""
        return self.master.startswith(_CLUSTER)

    @property
    def copies_max(self) -> int | None:
        """The hosts that hold each partition; None if each host holds all of them."""
        return None if self.copies == ALL_HOSTS else int(self.copies)

    @property
    def is_far(self) -> bool:
        """Whether the data are in an object store, which `data` itself or a former start names."""
        return bool(self.store or store_of(self.data))

    @property
    def host_root(self) -> Path:
        """The folder that each host of a cluster has on a disk of its own: with data in an object store, their folder."""
        return self.host_data if self.host_data != Path() else self.data if self.is_far else Path()

    def _complaints_of_copies(self) -> list[str]:
        if self.copies == ALL_HOSTS:
            return []
        if not (self.copies.isdecimal() and 0 < int(self.copies) <= _COPIES_MAX):
            return [f"copies = {self.copies!r}: must be `all`, or a number from 1 to {_COPIES_MAX}"]
        if self.auto_partitions:
            return [
                "auto_partitions = 1: with copies, the number of partitions says how finely the state is divided, and not how "
                "many tasks run; leave it 0"
            ]
        return []

    def _complaints_of_cluster(self) -> list[str]:
        """Return what is wrong with the settings of a cluster."""
        if not self.master or self.master.startswith("local"):
            return []
        if not self.is_cluster:
            return [
                f"master = {self.master!r}: must be spark://HOST:PORT, the address of a Spark standalone master; on "
                "Kubernetes, run Spark's master and workers there"
            ]
        complaints = []
        if self.master_secret == Path():
            complaints.append(
                "master_secret: is missing; a cluster runs any code that is sent to it, so start Spark's master and "
                "workers with spark.authenticate=true, and name a file with their spark.authenticate.secret"
            )
        root = self.host_root
        if root == Path() or not root.is_absolute():
            complaints.append(
                "host_data: name an absolute path, which each host has on a disk of its own"
            )
        elif not self.is_far and root.is_relative_to(self.data.absolute()):
            complaints.append(
                f"host_data = {self.host_data}: lies in the data directory, which all hosts share; each host needs a folder "
                "of its own"
            )
        if self.resident_task == 0:
            complaints.append("resident_task = 0: a cluster runs epochs in resident tasks only")
        return complaints


class Setting(NamedTuple):
    """A setting with its source.

    `name` is dotted where it lies in a table (`limits.time_ms`); `value` is text where the source
    knows only text; `where` is for people; relative paths count from `base`.
    """

    name: str
    value: object
    where: str
    base: Path = Path()


def load_config(
    *,
    data: Path,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[Setting] = (),
) -> Config:
    """Build a configuration from all its sources, in rising priority.

    Args:
        data: The data directory where no source names one.
        file: A TOML file that must exist; without it, `penstock.toml` of the current directory is
            read if it is there.
        environment: Variables; those that start with `PENSTOCK_` are settings.

    Raises:
        ConfigError: The file cannot be read, or settings are unknown or wrong; names all of them.
    """
    settings = [*_from_file(file), *_from_environment(environment or {}), *flags]
    complaints: list[str] = []
    chosen: dict[str, object] = {"data": data}
    views: dict[str, TargetSettings] = {}
    captures: dict[str, CaptureSettings] = {}
    properties: dict[str, str] = {}
    for given in settings:
        try:
            _take(given, chosen, views, captures, properties)
        except ConfigError as error:
            complaints.append(f"{given.where}: {error}")
    if complaints:
        raise ConfigError(_joined(complaints))
    if isinstance(url := chosen["data"], str):
        folder = chosen.get("host_data", Path())
        assert isinstance(folder, Path), "`_checked` converts it"
        data = folder if folder != Path() else host_folder(url, host_folders(environment or {}))
        chosen |= {"data": data, "store": url}
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    built: dict[str, Any] = {}
    for name, value in chosen.items():
        table, dot, rest = name.partition(".")
        (tables[table] if dot else built)[rest or name] = value
    tables[_KAFKA][_PROPERTIES] = properties
    made = {name: _TABLES[name](**table) for name, table in tables.items()}
    return Config(**built, **made, views=views, captures=captures)


def _take(
    given: Setting,
    chosen: dict[str, object],
    views: dict[str, TargetSettings],
    captures: dict[str, CaptureSettings],
    properties: dict[str, str],
) -> None:
    """Put a setting where it belongs."""
    if given.name.startswith(_OF_VIEWS):
        _add_target(views, given)
    elif given.name.startswith(_OF_CAPTURES):
        _add_capture(captures, given)
    elif given.name.startswith(_OF_KAFKA) and given.name not in _KINDS:
        _add_property(properties, given, given.name)
    else:
        chosen[given.name] = _checked(given)


def host_folders(environment: Mapping[str, str]) -> Path:
    """Return the folder of the folders of a host, as the XDG Base Directory Specification names it.

    Raises:
        ConfigError: No variable names the user's home.
    """
    named = Path(environment.get("XDG_DATA_HOME", ""))
    if not named.is_absolute():  # the specification ignores others
        try:
            named = Path.home() / ".local" / "share"
        except RuntimeError as error:
            raise ConfigError(
                "this user has no home directory; name a folder of this host with the setting host_data"
            ) from error
    return named / "penstock"


def help_of(name: str, default: str = "") -> str:
    """Return the help of an option that sets a setting: its meaning and its default.

    Args:
        default: Words for a default that depends on the machine.
    """
    expected = _KINDS[name]
    text = expected.meaning.text.replace("`", "")
    return f"{text[:1].upper()}{text[1:]}; default {default or expected.default}."


def meanings() -> dict[str, str]:
    """Return the meaning of each setting by its name, which is dotted if the setting lies in a table."""
    return {name: expected.meaning.text for name, expected in _KINDS.items()}


def parse_assignment(text: str) -> Setting:
    """Read `name=value` from the command line.

    Raises:
        ConfigError: The text has no `=`.
    """
    name, equals, value = text.partition("=")
    if name.strip().startswith((_OF_VIEWS, _OF_CAPTURES)) and name.strip().endswith(".url"):
        raise ConfigError(
            f"--set {name.strip()}: every user of the machine can read a command line, and the address of a database may "
            "contain a password; write it into a file, or give it in the environment"
        )
    of_kafka = name.strip().startswith(_OF_KAFKA) or (
        name.strip().startswith(_OF_VIEWS) and f".{_OF_KAFKA}" in name
    )
    if of_kafka and is_secret(name.strip()):
        raise ConfigError(
            f"--set {name.strip()}: every user of the machine can read a command line; give {name.strip()}_file, the name of a "
            "file, or set it in the environment"
        )
    if not equals:
        raise ConfigError(f"--set {text}: wants NAME=VALUE, for example --set small_epoch=200")
    return Setting(name.strip(), value.strip(), f"--set {name.strip()}")


def _from_file(file: Path | None) -> Iterator[Setting]:
    path = file if file is not None else Path(FILE_NAME)
    try:
        table = tomllib.loads(path.read_text())
    except FileNotFoundError:
        if file is None:
            return
        raise ConfigError(f"{file}: this file does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for name, value in _flattened(table):
        yield Setting(name, value, f"{path}, {name}", path.parent)


def _flattened(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            head, _, rest = name.partition("_")
            if name.startswith(_VIEWS + "_"):
                yield Setting(f"{_OF_VIEWS}{_of_view(rest)}", text, f"${variable}")
                continue
            if name.startswith(_CAPTURES + "_"):
                yield Setting(f"{_OF_CAPTURES}{_of_capture(rest)}", text, f"${variable}")
                continue
            yield Setting(f"{head}.{rest}" if head in _TABLES else name, text, f"${variable}")


def _of_view(rest: str) -> str:
    """Return the name of a setting of a view behind `views.`; `rest` is that of its variable, in small letters."""
    view, url, end = rest.rpartition("_url")
    if url and not rest.removesuffix(FILE_SUFFIX).endswith(_URL_OF_TOKENS):
        return f"{view}.url{end}"
    view, kafka, name = rest.rpartition(f"_{_KAFKA}_")
    return f"{view}.{_OF_KAFKA}{name}" if kafka else rest


def _of_capture(rest: str) -> str:
    """Return the name of a setting behind `captures.`; `rest` is that of its variable, in small letters."""
    ends = (end for end in _OF_DATABASE if rest.endswith(f"_{end}"))
    end = next(ends, "")
    return f"{rest.removesuffix(f'_{end}')}.{end}" if end else rest


def _checked(setting: Setting) -> object:
    """Return the value with its type.

    Raises:
        ConfigError: The setting does not exist, or the value does not fit.
    """
    expected = _KINDS.get(setting.name)
    if expected is None:
        near = _near(setting.name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"setting {setting.name!r} does not exist{hint}")
    value = _converted(setting, expected.type)
    complaint = _range_complaint(setting.name, value)
    if complaint is not None:
        raise ConfigError(complaint)
    return value


def _add_target(views: dict[str, TargetSettings], setting: Setting) -> None:
    """Add a setting of the target of a view. The value may be a secret, so that no message contains it."""
    view, _, name = setting.name.removeprefix(_OF_VIEWS).partition(".")
    is_property = name.startswith(_OF_KAFKA) and name != _OF_KAFKA
    if not (is_property or name in _ADDRESSES) or not view:
        raise ConfigError(
            f"setting {setting.name!r} does not exist; a view has url and url_file, and kafka.… for a target in Kafka"
        )
    if not is_property and (not isinstance(setting.value, str) or not setting.value):
        raise ConfigError(f"{setting.name}: must be text")
    is_variable = setting.where.startswith("$")
    near = [each for each in views if is_variable and _spelling(each) == _spelling(view)]
    known = near[0] if near else view
    given = views.get(known, TargetSettings())
    if is_property:
        properties = dict(given.properties)
        _add_property(properties, setting, name)
        table = f"{_OF_VIEWS}{view}.{_KAFKA}"
        refuse_own(table, properties, OWN_OF_VIEWS)
        views[known] = dataclasses.replace(given, properties=properties)
    else:
        views[known] = dataclasses.replace(given, **_address_in(setting, name))


def _address_in(setting: Setting, name: str) -> dict[str, Any]:
    # The later source decides, also if it gives the address in the other way.
    if name == "url":
        return {"url": str(setting.value), "url_file": Path()}
    return {"url": "", "url_file": setting.base / Path(str(setting.value)).expanduser()}


def _add_capture(captures: dict[str, CaptureSettings], setting: Setting) -> None:
    """Add a setting of the database of a stream of changes. The value may be a secret, so that no message contains it."""
    stream, _, name = setting.name.removeprefix(_OF_CAPTURES).partition(".")
    if name not in _OF_DATABASE or not stream:
        raise ConfigError(
            f"setting {setting.name!r} does not exist; a stream of changes has {', '.join(_OF_DATABASE)}"
        )
    if not isinstance(setting.value, str) or not setting.value:
        raise ConfigError(f"{setting.name}: must be text")
    is_variable = setting.where.startswith("$")
    near = [each for each in captures if is_variable and _spelling(each) == _spelling(stream)]
    known = near[0] if near else stream
    given = captures.get(known, CaptureSettings())
    changed = _address_in(setting, name) if name in _ADDRESSES else {name: setting.value.strip()}
    captures[known] = dataclasses.replace(given, **changed)


def _named(settings: Mapping[str, T], wanted: str) -> T | None:
    """Return the settings with a name, which a variable of the environment spells in its own way."""
    name = next((each for each in settings if _spelling(each) == _spelling(wanted)), wanted)
    return settings.get(wanted) or settings.get(name)


def _unknown(settings: Iterable[str], names: Iterable[str]) -> list[str]:
    known = {_spelling(name) for name in names}
    return [name for name in settings if _spelling(name) not in known]


def _add_property(properties: dict[str, str], setting: Setting, name: str) -> None:
    """Add a property of librdkafka. The value may be a secret, so that no message contains it.

    Args:
        name: The name of the setting from `kafka.` on.
    """
    name = name.removeprefix(_OF_KAFKA)
    if setting.where.startswith("$"):  # a variable of the environment has no dots
        is_file = name.endswith(FILE_SUFFIX)
        name = name.removesuffix(FILE_SUFFIX).replace("_", ".") + (FILE_SUFFIX if is_file else "")
    if not isinstance(setting.value, (str, int, bool)) or setting.value == "":
        raise ConfigError(f"{setting.name}: must be text, a number, or true or false")
    text = str(setting.value)
    if isinstance(setting.value, bool):
        text = text.lower()
    if name.endswith(FILE_SUFFIX):
        text = str(setting.base / Path(text).expanduser())
    properties[name] = text


def _spelling(view: str) -> str:
    return view.lower().replace("-", "_")


_CLUSTER: Final = "spark://"
_VIEWS: Final = "views"
_OF_VIEWS: Final = f"{_VIEWS}."
_OF_STORES: Final = SCHEME.removesuffix("/")
"""How the name of a place in a store begins, also after a path has lost a slash of it."""
_CAPTURES: Final = "captures"
_OF_CAPTURES: Final = f"{_CAPTURES}."
_NO_SETTINGS: Final = frozenset({_VIEWS, _CAPTURES, "store"})
"""Fields of `Config` that are no settings: tables with names of users, and a part of `data`."""
_ADDRESSES: Final = ("url", "url_file")
_OF_DATABASE: Final = ("url", "url_file", "slot", "publication")
_KAFKA: Final = KAFKA_TABLE
_OF_KAFKA: Final = f"{_KAFKA}."
_URL_OF_TOKENS: Final = "_kafka_sasl_oauthbearer_token_endpoint_url"
"""The one property whose variable ends as that of an address does."""
_PROPERTIES: Final = "properties"

_NEAR: Final = 0.8
"""How alike a name is that a wrong one means; a smaller ratio suggests settings of the same table."""


def _near(name: str) -> list[str]:
    """Return the settings that a wrong name probably means: near in full, or else without their table."""
    if near := difflib.get_close_matches(name, _KINDS, n=2, cutoff=_NEAR):
        return near
    by_end: dict[str, list[str]] = {}
    for each in _KINDS:
        by_end.setdefault(each.rpartition(".")[2], []).append(each)
    ends = difflib.get_close_matches(name.rpartition(".")[2], by_end, n=2, cutoff=_NEAR)
    return [each for end in ends for each in by_end[end]][:3]


def _converted(setting: Setting, wanted: type) -> object:
    name, value = setting.name, setting.value
    if wanted is int and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{name} = {value!r}: must be a whole number") from None
    if name == "data" and str(value).startswith(_OF_STORES):
        return place_of(SCHEME + str(value).removeprefix(_OF_STORES).removeprefix("/"))
    if wanted is Path and isinstance(value, str | Path) and str(value):
        return setting.base / Path(value).expanduser()
    if name == "app" and isinstance(value, str) and setting.base != Path():
        return ",".join(_from_base(setting.base, part) for part in value.split(","))
    if type(value) is not wanted:
        raise ConfigError(f"{name} = {value!r}: must be {_CALLED[wanted]}")
    return value


def _from_base(base: Path, spec: str) -> str:
    """Return an application's name, which counts from a folder if it is a path below it."""
    path = base / spec.strip()
    return str(path) if Path(str(path).partition(":")[0]).exists() else spec


def _range_complaint(name: str, value: object) -> str | None:
    meaning = _KINDS[name].meaning
    if meaning.choices and value not in meaning.choices:
        return f"{name} = {value!r}: must be one of {', '.join(meaning.choices)}"
    if name == "key_service" and value not in ("", PLAIN) and not is_service(str(value)):
        return f"{name} = {value!r}: must be module:name, or {PLAIN}"
    if not isinstance(value, int) or meaning.at_least <= value <= meaning.at_most:
        return None
    bound = f"least {meaning.at_least}" if value < meaning.at_least else f"most {meaning.at_most}"
    return f"{name} = {value}: must be at {bound}"


def _value_of(config: Config, name: str) -> object:
    head, _, rest = name.partition(".")
    value = getattr(config, head)
    return getattr(value, rest) if rest else value


def _joined(complaints: list[str]) -> str:
    if len(complaints) == 1:
        return complaints[0]
    lines = "\n".join(f"  {complaint}" for complaint in complaints)
    return f"{len(complaints)} settings cannot be used:\n{lines}"


class _Kind(NamedTuple):
    """The type of a setting, its default and its meaning."""

    type: type
    default: object
    meaning: Meaning


def _kind_of(declared: dataclasses.Field[Any]) -> _Kind:
    return _Kind(declared.type, declared.default, meaning_of(declared))  # type: ignore[arg-type]  # no text


_CALLED: Final = {int: "a whole number", str: "text", Path: "a path"}
_TABLES: Final[dict[str, type[Any]]] = {
    "limits": Limits,
    "gateway": GatewayConfig,
    "view": ViewConfig,
    "history": HistoryConfig,
    "effects": EffectsConfig,
    _KAFKA: KafkaConfig,
    "prices": PriceConfig,
}
_KINDS: Final = {
    **{
        field.name: _kind_of(field)
        for field in dataclasses.fields(Config)
        if field.name not in _TABLES and field.name not in _NO_SETTINGS
    },
    **{
        f"{name}.{field.name}": _kind_of(field)
        for name, table in _TABLES.items()
        for field in dataclasses.fields(table)
        if field.name != _PROPERTIES
    },
}
