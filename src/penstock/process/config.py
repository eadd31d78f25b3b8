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
from typing import Any, Final, NamedTuple

from penstock.engine.limits import Limits
from penstock.errors import ConfigError
from penstock.files.key_service import PLAIN, is_service
from penstock.process import logs
from penstock.process.sections import GatewayConfig as GatewayConfig
from penstock.process.sections import HistoryConfig as HistoryConfig
from penstock.process.sections import ViewConfig as ViewConfig

FILE_NAME: Final = "penstock.toml"
PREFIX: Final = "PENSTOCK_"

RECORD_SLACK: Final = 64 << 10
"""Bytes by which a request in the log may exceed its HTTP body: path, names, encoding."""


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
        limits: The limits of a transaction.
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
        gateway: The settings of the gateways.
        view: The settings of the SQL view.
        history: The settings of snapshots, merging and forgetting.
        fault: `step@count` kills a process there (`process.fault`); empty outside of tests.
    """

    data: Path
    app: str = ""
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    partitions: int = 0
    master: str = ""
    epoch_records_max: int = 10_000
    epoch_bytes_max: int = 64 << 20
    epoch_output_bytes_max: int = 64 << 20
    small_epoch: int = 1_500
    large_atom: int = 0
    poll_ms: int = 50
    batch_ms: int = 10_000
    resident_task: int = 1
    limits: Limits = field(default_factory=Limits)
    record_bytes_max: int = 1 << 20
    retention_s: int = 7 * 86_400
    stuck_s: int = 30
    driver_memory_mb: int = 1_024
    class_archive: int = 1
    key_service: str = ""
    log_format: str = "text"
    log_level: str = "info"
    gateway: GatewayConfig = field(default_factory=GatewayConfig)
    view: ViewConfig = field(default_factory=ViewConfig)
    history: HistoryConfig = field(default_factory=HistoryConfig)
    fault: str = ""

    def __post_init__(self) -> None:
        """Check every value.

        Raises:
            ConfigError: Values cannot be used; the message names all of them with their bounds.
        """
        values = {name: _value_of(self, name) for name in (*_RANGES, *_CHOICES, "key_service")}
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
        flags: The settings of the command line.

    Raises:
        ConfigError: The file cannot be read, or settings are unknown or wrong; names all of them.
    """
    settings = [*_from_file(file), *_from_environment(environment or {}), *flags]
    complaints: list[str] = []
    chosen: dict[str, object] = {"data": data}
    for setting in settings:
        try:
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
    return Config(**built, **{name: _TABLES[name](**table) for name, table in tables.items()})


def setting_names() -> list[str]:
    """Return the name of every setting, dotted where it lies in a table."""
    return list(_TYPES)


def parse_assignment(text: str) -> Setting:
    """Read `name=value` from the command line.

    Raises:
        ConfigError: The text has no `=`.
    """
    name, equals, value = text.partition("=")
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
            yield Setting(f"{head}.{rest}" if head in _TABLES else name, text, f"${variable}")


def _checked(setting: Setting) -> object:
    """Return the value with its type.

    Raises:
        ConfigError: The setting does not exist, or the value does not fit.
    """
    wanted = _TYPES.get(setting.name)
    if wanted is None:
        near = _near(setting.name)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"setting {setting.name!r} does not exist{hint}")
    value = _converted(setting, wanted)
    complaint = _range_complaint(setting.name, value)
    if complaint is not None:
        raise ConfigError(complaint)
    return value


_NEAR: Final = 0.8
"""How alike a name is that a wrong one means; a smaller ratio suggests settings of the same table."""


def _near(name: str) -> list[str]:
    """Return the settings that a wrong name probably means: near in full, or else without their table."""
    if near := difflib.get_close_matches(name, _TYPES, n=2, cutoff=_NEAR):
        return near
    by_end: dict[str, list[str]] = {}
    for setting in _TYPES:
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
    least, most = _RANGES.get(name, (-_HUGE, _HUGE))
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


def _type_of(annotation: object) -> type:
    assert isinstance(annotation, type), f"{annotation} is a type and not its text"
    return annotation


_CALLED: Final = {int: "a whole number", str: "text", Path: "a path"}
_HUGE: Final = 1 << 62
_TABLES: Final[dict[str, type[Any]]] = {
    "limits": Limits,
    "gateway": GatewayConfig,
    "view": ViewConfig,
    "history": HistoryConfig,
}
_TYPES: Final = {
    **{
        field.name: _type_of(field.type)
        for field in dataclasses.fields(Config)
        if field.name not in _TABLES
    },
    **{
        f"{name}.{field.name}": _type_of(field.type)
        for name, table in _TABLES.items()
        for field in dataclasses.fields(table)
    },
}
_CHOICES: Final = {"log_format": logs.FORMS, "log_level": logs.LEVELS}
_RANGES: Final = {
    "cores": (1, 1_024),
    "partitions": (0, 1_024),  # a partition owns at least one bucket
    "epoch_records_max": (1, _HUGE),
    "epoch_bytes_max": (1, _HUGE),
    "epoch_output_bytes_max": (64, _HUGE),
    "small_epoch": (0, _HUGE),
    "large_atom": (0, _HUGE),
    "poll_ms": (1, 60_000),
    "batch_ms": (0, _HUGE),
    "resident_task": (0, 1),
    "record_bytes_max": (1_024, 1 << 30),
    "retention_s": (0, _HUGE),
    "stuck_s": (1, _HUGE),
    "driver_memory_mb": (256, _HUGE),
    "class_archive": (0, 1),
    "limits.time_ms": (1, _HUGE),
    "limits.wall_ms": (1, _HUGE),
    "limits.memory_bytes": (1 << 20, _HUGE),
    "limits.depth": (50, 100_000),
    "limits.reply_bytes": (64, _HUGE),
    "limits.state_bytes": (64, _HUGE),
    "limits.output_bytes": (64, _HUGE),
    "limits.cascade_steps": (1, _HUGE),
    "limits.cascade_queue": (1, _HUGE),
    "limits.cascade_queue_bytes": (64, _HUGE),
    "limits.entities": (1, _HUGE),
    "gateway.port": (0, 65_535),
    "gateway.processes": (1, 64),
    "gateway.body_bytes_max": (1_024, 1 << 30),
    "gateway.header_bytes_max": (8_192, 1 << 20),
    "gateway.depth_max": (4, 512),
    "gateway.key_bytes_max": (16, 64 << 10),
    "gateway.connections_max": (16, 1_000_000),
    "gateway.waiting_max": (1, _HUGE),
    "gateway.pipeline_window": (1, 1_000_000),
    "gateway.window_ms": (0, _HUGE),
    "gateway.lag_max": (1, _HUGE),
    "gateway.reply_timeout_ms": (1, _HUGE),
    "gateway.receive_timeout_ms": (1, _HUGE),
    "gateway.drain_ms": (0, _HUGE),
    "gateway.readers": (0, 64),
    "gateway.open": (0, 1),
    "view.memory_mb": (64, _HUGE),
    "view.threads": (1, 1_024),
    "view.time_ms": (1, _HUGE),
    "view.rows_max": (1, _HUGE),
    "view.requests_max": (0, _HUGE),
    "history.snapshot_epochs": (0, _HUGE),
    "history.snapshot_s": (0, _HUGE),
    "history.snapshot_requests": (0, _HUGE),
    "history.snapshots_max": (2, 1_000),
    "history.keep_epochs": (0, _HUGE),
    "history.keep_s": (0, _HUGE),
    "history.keep_mb": (0, _HUGE),
    "history.merge_epochs": (2, 100_000),
    "history.grace_s": (0, _HUGE),
    "history.nice": (0, 19),
}
