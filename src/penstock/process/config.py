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
from typing import Annotated, Any, Final, NamedTuple, get_args

from msgspec import Meta

from penstock.engine.limits import Limits, Positive
from penstock.errors import ConfigError
from penstock.files.key_service import PLAIN, is_service
from penstock.process import logs

FILE_NAME: Final = "penstock.toml"
PREFIX: Final = "PENSTOCK_"

Count = Annotated[int, Meta(ge=0)]
Switch = Annotated[int, Meta(ge=0, le=1)]
"""1: on."""

RECORD_SLACK: Final = 64 << 10
"""Bytes by which a request in the log may exceed its HTTP body: path, names, encoding."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of the gateways: HTTP in, replies out.

    Attributes:
        host: Address to bind to; one beyond loopback wants `keys`, `jwks` or `open`.
        port: TCP port, shared by all gateways of an application; 0 takes a free one.
        body_bytes_max: The most bytes of an HTTP body; the request must fit `record_bytes_max`.
        header_bytes_max: The most bytes of all headers of an HTTP request.
        depth_max: How deep JSON may be nested.
        key_bytes_max: The most bytes of an entity's key, and of a request id.
        limits: Limits on requests, separated by commas, as in `* 200/s per principal, Order 50 at once`.
        connections_max: The most open connections of a gateway; fewer if its limit of open files is low.
        waiting_max: The most requests that a gateway waits for; more get 429 with `Retry-After`.
        pipeline_window: The most requests under way of one pipelined connection.
        window_ms: If the log holds more requests than one epoch of this time processes, further ones wait
            for the turn of their principal; 0 appends every request at once.
        lag_max: Records that may wait in the log; beyond, requests get 429 with `Retry-After`.
        reply_timeout_ms: How long a call waits for its reply before it gets 504.
        receive_timeout_ms: How long a client may take to send a request.
        drain_ms: How long a gateway that stops waits for its requests.
        readers: Processes of each gateway that answer `@readonly` calls; with 0 such calls are
            requests in the log.
        tls_certificate: PEM file; with `tls_key` the gateways speak HTTPS only.
        tls_key: PEM file (PKCS #8).
        jwks: JSON Web Key Set file; its keys sign the bearer tokens that are accepted.
        jwt_algorithms: The signatures that are accepted, separated by commas.
        jwt_issuer: The only `iss` accepted; empty accepts any.
        jwt_audience: The name that `aud` must have; empty accepts every token.
        cors_origins: Origins that browsers may call from, separated by commas; empty allows no origin.
        open: 1 accepts every caller that reaches the port, without keys or tokens.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8_000
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    body_bytes_max: Annotated[int, Meta(ge=1_024, le=1 << 30)] = 512 << 10
    header_bytes_max: Annotated[int, Meta(ge=8_192, le=1 << 20)] = 32 << 10
    depth_max: Annotated[int, Meta(ge=4, le=512)] = 64
    key_bytes_max: Annotated[int, Meta(ge=16, le=64 << 10)] = 1_024
    limits: str = ""
    connections_max: Annotated[int, Meta(ge=16, le=1_000_000)] = 10_000
    waiting_max: Positive = 20_000
    pipeline_window: Annotated[int, Meta(ge=1, le=1_000_000)] = 2_000
    window_ms: Count = 100
    lag_max: Positive = 1_000_000
    reply_timeout_ms: Positive = 300_000
    receive_timeout_ms: Positive = 30_000
    drain_ms: Count = 30_000
    readers: Annotated[int, Meta(ge=0, le=64)] = 2
    tls_certificate: Path = Path()
    tls_key: Path = Path()
    jwks: Path = Path()
    jwt_algorithms: str = "RS256,ES256,EdDSA"
    jwt_issuer: str = ""
    jwt_audience: str = ""
    cors_origins: str = ""
    open: Switch = 0


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """Settings of the SQL view.

    Attributes:
        memory_mb: The memory of DuckDB; a query that needs more fails.
        time_ms: Longest a query may run.
        rows_max: Most rows that an answer has.
        requests_max: Newest requests and replies that the view keeps, and newest events of each stream.
    """

    memory_mb: Annotated[int, Meta(ge=64)] = 1_024
    threads: Annotated[int, Meta(ge=1, le=1_024)] = 2
    time_ms: Positive = 30_000
    rows_max: Positive = 1_000_000
    requests_max: Count = 1_000_000


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Settings of the target of one view, `views.NAME.url` and so on.

    Attributes:
        url: The address of the target, with its password. It is never printed.
        url_file: A file that contains the address.
    """

    url: str = field(default="", repr=False)
    url_file: Path = Path()

    def address(self) -> str:
        """Return the address; empty if there is none.

        Raises:
            ConfigError: The file with the address cannot be read.
        """
        if self.url or self.url_file == Path():
            return self.url
        try:
            return self.url_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"url_file = {self.url_file}: {reason}") from error


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """Settings of snapshots, merging and forgetting.

    A snapshot is taken when one of its three bounds is reached and something has changed; 0 switches
    a bound off. Epochs are forgotten when one of the three `keep` bounds is exceeded and no reader
    needs them; 0 switches a bound off.

    Attributes:
        snapshot_epochs: Epochs between two snapshots.
        snapshot_s: Seconds between two snapshots.
        snapshot_requests: Requests between two snapshots.
        snapshots_max: Snapshots that are kept for queries of the past; older ones are thinned out.
        keep_epochs: Epochs that the journal keeps.
        keep_s: Seconds for which the journal keeps an epoch.
        keep_mb: Megabytes of epochs that the journal keeps.
        merge_epochs: Older epochs whose small files are merged into one.
        grace_s: Seconds for which files that were merged stay, for other Delta readers.
        nice: Priority of the process that does this: 19 is the lowest, 0 that of all others.
    """

    snapshot_epochs: Count = 5_000
    snapshot_s: Count = 900
    snapshot_requests: Count = 1_000_000
    snapshots_max: Annotated[int, Meta(ge=2, le=1_000)] = 5
    keep_epochs: Count = 0
    keep_s: Count = 0
    keep_mb: Count = 0
    merge_epochs: Annotated[int, Meta(ge=2, le=100_000)] = 2_000
    grace_s: Count = 600
    nice: Annotated[int, Meta(ge=0, le=19)] = 19


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of an application's processes.

    Attributes:
        data: Directory of the application: log, journal, state, checkpoint.
        app: The application of commands that name no other; empty if every command names it.
        cores: Spark task slots of the embedded master.
        partitions: Tasks of a round and stores of the state at the first start, before the journal has a
            number (`orders.partitions`); 0 means as many as cores.
        master: Spark master URL; empty means `local[cores+2,4]`.
        epoch_records_max: Admission limit: the most records of an epoch.
        epoch_bytes_max: Admission limit: the most bytes of request bodies in an epoch.
        epoch_output_bytes_max: Bytes of replies and changes after which an epoch is cut; the rest
            of its requests are the next one's.
        small_epoch: An epoch of at most so many records runs in one task.
        large_atom: An atom of at least so many events is divided among the partitions by key, where its
            workflow allows it; 0: no atom is.
        poll_ms: How long a micro-batch of Spark waits for records before it looks again.
        batch_ms: How long a micro-batch of Spark stays open for further records.
        resident_task: 1: epochs run in resident tasks, each in a slot of its own; 0: each round of an epoch is a
            Spark job. Without effect if `master` is set.
        record_bytes_max: The log's size limit of one request.
        retention_s: Seconds for which a request id stays known.
        stuck_s: A task that makes no progress for so long is named in a warning; after twice that
            its worker is killed. Must be well above `limits.time_ms`.
        driver_memory_mb: Heap of Spark's JVM.
        class_archive: 1: Java reads its classes from an archive in the user's cache directory, which
            a driver makes if it is missing; 0: no archive is read or made.
        key_service: `module:name` of a class or function without parameters, which makes the service that encrypts
            the file with the keys of personal data (`files.key_service`); `plain`: none does; empty: as it is.
        log_format: `text` or `json`: the form of the lines that processes write to standard error.
        log_level: The lowest level that they write: `debug`, `info`, `warning` or `error`.
        view: The settings of the SQL view.
        history: The settings of snapshots, merging and forgetting.
        views: The settings of the targets of views, by the name of the view; see `target_settings`.
        fault: `step@count` kills a process there (`process.fault`); empty outside of tests.
    """

    data: Path
    app: str = ""
    cores: Annotated[int, Meta(ge=1, le=1_024)] = field(default_factory=lambda: os.cpu_count() or 1)
    partitions: Annotated[int, Meta(ge=0, le=1_024)] = 0
    master: str = ""
    epoch_records_max: Positive = 10_000
    epoch_bytes_max: Positive = 64 << 20
    epoch_output_bytes_max: Annotated[int, Meta(ge=64)] = 64 << 20
    small_epoch: Count = 1_500
    large_atom: Count = 0
    poll_ms: Annotated[int, Meta(ge=1, le=60_000)] = 50
    batch_ms: Count = 10_000
    resident_task: Switch = 1
    limits: Limits = field(default_factory=Limits)
    record_bytes_max: Annotated[int, Meta(ge=1_024, le=1 << 30)] = 1 << 20
    retention_s: Count = 7 * 86_400
    stuck_s: Positive = 30
    driver_memory_mb: Annotated[int, Meta(ge=256)] = 1_024
    class_archive: Switch = 1
    key_service: str = ""
    log_format: str = "text"
    log_level: str = "info"
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    view: ViewConfig = field(default_factory=ViewConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    views: Mapping[str, TargetSettings] = field(default_factory=dict, hash=False)
    fault: str = ""

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
        if self.gateway.body_bytes_max > self.record_bytes_max - RECORD_SLACK:
            complaints.append(
                f"gateway.body_bytes_max = {self.gateway.body_bytes_max}: must stay "
                f"{RECORD_SLACK} bytes below record_bytes_max = {self.record_bytes_max}, so that "
                "every request of a gateway fits the log"
            )
        if complaints:
            raise ConfigError(_joined(complaints))
        if self.partitions == 0:
            object.__setattr__(self, "partitions", self.cores)

    def target_settings(self, view: str) -> TargetSettings:
        """Return the settings of the target of a view; a variable of the environment spells its name in its own way."""
        name = next((each for each in self.views if _spelling(each) == _spelling(view)), view)
        return self.views.get(view) or self.views.get(name) or TargetSettings()

    def views_without(self, names: Iterable[str]) -> list[str]:
        """Return the names in `views` that no view of an application has.

        Args:
            names: The names of its views.
        """
        known = {_spelling(name) for name in names}
        return [name for name in self.views if _spelling(name) not in known]

    @property
    def spark_master(self) -> str:
        """The master URL for Spark: a slot for each core, for maintenance and for each resident task.

        Maintenance has a low priority; in a slot of an epoch it would delay the epoch.
        """
        return self.master or f"local[{self.cores + 1 + self.residents},4]"

    @property
    def residents(self) -> int:
        """The number of resident tasks: one for each core that the tasks of an epoch can use.

        With another master there are none, because it may have no slots for them.
        """
        resides = self.resident_task == 1 and not self.master
        return min(self.cores, self.partitions) if resides else 0


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
    for setting in settings:
        try:
            if setting.name.startswith(_OF_VIEWS):
                _add_target(views, setting)
            else:
                chosen[setting.name] = _checked(setting)
        except ConfigError as error:
            complaints.append(f"{setting.where}: {error}")
    if complaints:
        raise ConfigError(_joined(complaints))
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    built: dict[str, Any] = {}
    for name, value in chosen.items():
        table, dot, rest = name.partition(".")
        (tables[table] if dot else built)[rest or name] = value
    made = {name: _TABLES[name](**table) for name, table in tables.items()}
    return Config(**built, **made, views=views)


def setting_names() -> list[str]:
    """Return the name of every setting, dotted where it lies in a table."""
    return list(_KINDS)


def parse_assignment(text: str) -> Setting:
    """Read `name=value` from the command line.

    Raises:
        ConfigError: The text has no `=`.
    """
    name, equals, value = text.partition("=")
    if name.strip().startswith(_OF_VIEWS) and name.strip().endswith(".url"):
        raise ConfigError(
            f"--set {name.strip()}: every user of the machine can read a command line, and the address of a target may "
            "contain a password; write it into a file, or give it in the environment"
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
                view, url, end = rest.rpartition("_url")
                of_view = f"{_OF_VIEWS}{view}.url{end}" if url else f"{_OF_VIEWS}{rest}"
                yield Setting(of_view, text, f"${variable}")
                continue
            yield Setting(f"{head}.{rest}" if head in _TABLES else name, text, f"${variable}")


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
    view, _, name = setting.name.removeprefix(_OF_VIEWS).rpartition(".")
    kinds = {each.name: each.type for each in dataclasses.fields(TargetSettings)}
    if name not in kinds or not view:
        raise ConfigError(f"setting {setting.name!r} does not exist; a view has url and url_file")
    if not isinstance(setting.value, str) or not setting.value:
        raise ConfigError(f"{setting.name}: must be text")
    is_variable = setting.where.startswith("$")
    near = [each for each in views if is_variable and _spelling(each) == _spelling(view)]
    known = near[0] if near else view
    # The later source decides, also if it gives the address in the other way.
    if name == "url":
        views[known] = TargetSettings(setting.value)
    else:
        path = setting.base / Path(setting.value).expanduser()
        views[known] = TargetSettings(url_file=path)


def _spelling(view: str) -> str:
    return view.lower().replace("-", "_")


_VIEWS: Final = "views"
_OF_VIEWS: Final = f"{_VIEWS}."

_NEAR: Final = 0.8
"""How alike a name is that a wrong one means; a smaller ratio suggests settings of the same table."""


def _near(name: str) -> list[str]:
    """Return the settings that a wrong name probably means: near in full, or else without their table."""
    if near := difflib.get_close_matches(name, _KINDS, n=2, cutoff=_NEAR):
        return near
    by_end: dict[str, list[str]] = {}
    for setting in _KINDS:
        by_end.setdefault(setting.rpartition(".")[2], []).append(setting)
    ends = difflib.get_close_matches(name.rpartition(".")[2], by_end, n=2, cutoff=_NEAR)
    return [setting for end in ends for setting in by_end[end]][:3]


def _converted(setting: Setting, wanted: type) -> object:
    name, value = setting.name, setting.value
    if wanted is int and isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise ConfigError(f"{name} = {value!r}: must be a whole number") from None
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
    if name in _CHOICES and value not in _CHOICES[name]:
        return f"{name} = {value!r}: must be one of {', '.join(_CHOICES[name])}"
    if name == "key_service" and value not in ("", PLAIN) and not is_service(str(value)):
        return f"{name} = {value!r}: must be module:name, or {PLAIN}"
    _, least, most = _KINDS[name]
    if not isinstance(value, int) or least <= value <= most:
        return None
    return f"{name} = {value}: must be at {f'least {least}' if value < least else f'most {most}'}"


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
    """The type of a setting, and its bounds if it is a number."""

    type: type
    least: int
    most: int


def _kind_of(annotation: Any) -> _Kind:
    base, *notes = get_args(annotation) or (annotation,)
    bounds: Any = notes[0] if notes else Meta()
    least = -_HUGE if bounds.ge is None else bounds.ge
    return _Kind(base, least, _HUGE if bounds.le is None else bounds.le)


_CALLED: Final = {int: "a whole number", str: "text", Path: "a path"}
_HUGE: Final = 1 << 62
_TABLES: Final[dict[str, type[Any]]] = {
    "limits": Limits,
    "gateway": GatewayConfig,
    "view": ViewConfig,
    "history": HistoryConfig,
}
_KINDS: Final = {
    **{
        field.name: _kind_of(field.type)
        for field in dataclasses.fields(Config)
        if field.name not in _TABLES and field.name != _VIEWS
    },
    **{
        f"{name}.{field.name}": _kind_of(field.type)
        for name, table in _TABLES.items()
        for field in dataclasses.fields(table)
    },
}
_CHOICES: Final = {"log_format": logs.FORMS, "log_level": logs.LEVELS}
