"""The options that several commands share, and the application and settings that they choose.

This module alone reads the environment. Every command finds its application in the same way: from
the argument APP, from the option `--app`, or from the setting `app`. `AppOptions.load` compares the
declared classes with the stored ones, so that no command reads or writes entities whose class has
changed.

A command takes a group of options as one parameter: `expanded` gives its fields to typer.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli import completion
from penstock.deployment.loading import load_app, locate
from penstock.errors import ConfigError
from penstock.files.local_root import LocalRoot
from penstock.files.roots import has_journal, root_at, use_store
from penstock.files.shared_root import SCHEME
from penstock.native import choice
from penstock.process.config import Config, Setting, help_of, load_config, parse_assignment

if TYPE_CHECKING:
    from penstock.files.shared_root import SharedRoot
    from penstock.history.branch import NewPlace
    from penstock.model.application import App
    from penstock.model.versions.schema_change import SchemaChange
    from penstock.orders.order import Place

DIRECTORY: Final = Path(".penstock")
"""The folder of data directories, when no option names one."""

NOWHERE: Final = Path()
"""Stands for a data directory that no option names."""

_FLAGS: Final = {
    "gateway.host": "host",
    "gateway.port": "port",
    "gateway.processes": "gateways",
}
"""Options whose names differ from those of their settings."""

_UNNAMED_FOLDER: Final = "name the application, or give its data directory as --data"
UNNAMED: Final = (
    "name the application: write it as APP at the end of the command, as --app APP, as "
    'PENSTOCK_APP=APP in the environment, or as app = "APP" in penstock.toml of the present folder; '
    "penstock new kiosk writes a first application"
)
"""The message of a command that needs an application and finds no name."""

KEY_VARIABLE: Final = "PENSTOCK_KEY"
_NO_SETTINGS: Final = frozenset({KEY_VARIABLE, choice.VARIABLE})
"""The environment variable with the API key for `--url`; it is not a setting."""

AppArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="APP",
        help="The application: module, module:name, a .py file or a package folder; several applications run together, "
        "and so do those of a folder of packages. Default: the setting app.",
        show_default=False,
        autocompletion=completion.applications,
    ),
]
RequestIdArgument = Annotated[
    str,
    typer.Argument(metavar="REQUEST_ID", help="The request: its id, or the beginning of its id."),
]
AppOption = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="APP",
        help="The application, in place of the argument APP.",
        autocompletion=completion.applications,
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Data directory, or s3://BUCKET/PREFIX; default .penstock/<app name>.",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file; default penstock.toml, if it exists."
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", metavar="N", help=help_of("partitions", "as many as cores")),
]
CoresOption = Annotated[
    int | None, typer.Option("--cores", metavar="N", help=help_of("cores", "all"))
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help=help_of("master", "the tasks run on this host")),
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help=help_of("gateway.host")),
]
PortOption = Annotated[
    int | None, typer.Option("--port", metavar="PORT", help=help_of("gateway.port"))
]
LogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="URL", help=help_of("log", "as it is")),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="parquet, csv or jsonl; default: by the suffix of the file.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by its name; may be repeated."),
]
GatewaysOption = Annotated[
    int | None, typer.Option("--gateways", metavar="N", help=help_of("gateway.processes"))
]
RequestIdOption = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="As SQL shows it; default: a new one."),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait.", min=0)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
JsonLogOption = Annotated[
    bool, typer.Option("--json", help="Write log output as JSON: the setting log_format.")
]
GenerateOption = Annotated[
    bool, typer.Option("--generate", help="Run the generators of the application, too.")
]
StandbyOption = Annotated[
    bool, typer.Option("--standby", help="Keep a second driver ready, which takes over at once.")
]
SupervisedOption = Annotated[
    bool,
    typer.Option("--supervised", hidden=True, help="Stop at the end of standard input; be quiet."),
]
DeployedOption = Annotated[
    bool,
    typer.Option("--deployed", hidden=True, help="Run the code that is in force, not the source."),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drop",
        metavar="CLASS",
        help="Remove a class whose entities are stored, and stay stored; may be repeated.",
    ),
]
AbandonLogOption = Annotated[
    bool,
    typer.Option(
        "--abandon-log",
        help="The host with the log is lost, and its requests, too: begin another log here (data in an object store).",
    ),
]
FromOption = Annotated[
    int | None,
    typer.Option(
        "--from", metavar="EPOCH", help="The first epoch; default the oldest that is held."
    ),
]
ToOption = Annotated[
    int | None, typer.Option("--to", metavar="EPOCH", help="The last epoch; default the newest.")
]


def schema_changes(application: "App", settings: "Config") -> "Sequence[SchemaChange]":
    """Return the compatible changes of stored classes, which a driver will deploy.

    Raises:
        ClassChanged: A class cannot read its stored entities; nothing was written.
    """
    if not has_journal(settings.data):  # nothing is stored, and no reader is needed
        return ()
    from penstock.process.data_directory import DataDirectory

    return DataDirectory(settings.data).check_app(application)


def prepare_log(settings: "Config") -> None:
    """Check that a log in Kafka can be used; the first time, let it begin there. An embedded one needs nothing.

    Raises:
        ConfigError: The settings, the credentials or the topic are wrong.
        LogUnavailable: No broker answers.
    """
    from penstock.process.data_directory import DataDirectory

    directory = DataDirectory(settings.data)
    is_new_there = directory.has_log_in_kafka(settings) and not directory.has_log_in_kafka(None)
    if is_new_there and directory.shared.is_far and has_journal(settings.data):
        from penstock.history.moved_log import begin_log

        # A restored application, or one that ran on another host: its embedded log comes here first, and then into the topic.
        begin_log(replace(settings, log=""), abandons=False)
    directory.prepare_log(settings)


PresentCodeOption = Annotated[
    bool,
    typer.Option(
        "--present-code",
        help="Run all requests with the present code, not with that of their epochs.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """The options of every command that needs an application, or only its data directory."""

    named: AppOption = None
    data: DataOption = None
    config: ConfigOption = None
    assignments: SetOption = None

    @property
    def spec(self) -> str | None:
        """The application that the command line names, if it names one."""
        return self.named

    def load(self, **flags: str | int | None) -> "tuple[App, Config]":
        """Load the application, build its settings, and check that the stored data fit it.

        The settings name the application and its data directory.

        Args:
            flags: Options by the name of their setting; None if not given.

        Raises:
            IntegrityError: The journal is damaged.
        """
        application, settings = self.load_unchecked(**flags)
        schema_changes(application, settings)
        return application, settings

    def find(self, hint: str | None = None) -> None:
        """Check that the application exists, if a source names one; nothing is imported.

        A command calls this before it imports its work, so that a wrong name is reported at once.

        Args:
            hint: The end of the error message of a command that needs an application or a data directory; None for a
                command that works without them.

        Raises:
            ConfigError: There is no such application, the command needs a name and has none, or a setting is invalid.
        """
        settings = self.settings()
        if settings.app:
            locate(settings.app)
        elif hint is not None and settings.data == NOWHERE:
            raise ConfigError(f"{_UNNAMED_FOLDER}{hint}")

    def load_unchecked(self, **flags: str | int | None) -> "tuple[App, Config]":
        """Do the same without the check, for a command that reads no entities."""
        settings = self.settings(**flags)
        if not settings.app:
            raise ConfigError(UNNAMED)
        application = load_app(settings.app)
        if settings.data == NOWHERE:
            settings = replace(settings, data=default_data(application.name))
        return application, settings

    def folder(self, default: Path = NOWHERE, hint: str = "") -> Path:
        """Return the data directory; the application is loaded only if nothing else names it.

        Args:
            default: The directory when neither options nor settings name one, or an application.
        """
        settings = self.settings()
        if settings.data != NOWHERE and not settings.data.exists():
            raise ConfigError(f"the data directory {settings.data} does not exist")
        if settings.data != NOWHERE and self.spec is None:
            return settings.data
        if settings.app:
            return self.load_unchecked()[1].data
        if default == NOWHERE:
            raise ConfigError(f"{_UNNAMED_FOLDER}{hint}")
        return default

    def place(self, told: "Callable[[int, int], None] | None" = None) -> "Place":
        """Return the place of an order that needs only the data directory; raises as `folder`.

        Args:
            told: Takes the progress of long work.
        """
        from penstock.orders.order import Place

        return Place(replace(self.settings(), data=self.folder()), told=told)

    def settings(self, **flags: str | int | None) -> Config:
        """Return the settings; `app` is empty and `data` is `NOWHERE` if no source names them.

        Args:
            flags: Options by the name of their setting; None if not given.
        """
        settings = config_of(
            NOWHERE,
            data=self.data,
            file=self.config,
            assignments=self.assignments,
            **{
                "app": self.spec,
                **{name: flag for name, flag in flags.items() if flag is not None},
            },
        )
        if settings.store:
            use_store(settings.data, settings.store)
        elif not next(
            filter(Path.exists, (settings.data, *settings.data.parents)), NOWHERE
        ).is_dir():
            raise ConfigError(f"the data directory {settings.data} is a file, or is below a file")
        return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions(DataOptions):
    """The same options, with the application as the last argument of the command."""

    app: AppArgument = None

    @property
    def spec(self) -> str | None:
        """The application that the command line names, if it names one."""
        given = ",".join(self.app) if self.app else None
        if given is not None and self.named not in (None, given):
            raise ConfigError(f"the command names two applications: {given} and --app {self.named}")
        return self.named if given is None else given


def with_deployed_code(options: AppOptions) -> AppOptions:
    """Return the options with the code that is in force as the application; as they are without a deployment."""
    from penstock.deployment.code_in_force import code_in_force

    # A process that is started again must not take a source file that has changed since.
    code = code_in_force(options.settings().data)
    return options if code is None else replace(options, app=[code[0]], named=None)


def check_class_word(word: str, form: str) -> None:
    """Check that a word can name a class, and is not an application in the wrong place."""
    if not word.isidentifier():
        raise ConfigError(f"{word} cannot be the name of a class; the form is {form}")


DeployTimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, help="How long to wait until the code is in force."
    ),
]
"""How long a command waits for the driver, and then for the gateways."""


def log_flags(*, as_json: bool) -> dict[str, str | int | None]:
    """Return the settings that `--json` means for a command that keeps running."""
    return {"log_format": "json"} if as_json else {}


def default_data(name: str) -> Path:
    """Return the default data directory of an application."""
    return DIRECTORY / name


def config_of(
    default: Path,
    *,
    data: Path | None = None,
    file: Path | None = None,
    assignments: list[str] | None = None,
    **flags: str | int | None,
) -> Config:
    """Build the settings of a command from file, environment and options.

    Args:
        default: The data directory when no source names one.
        data: The value of `--data`.
        file: The value of `--config`.
        assignments: The values of `--set`.
        flags: Options by the name of their setting; None if not given.
    """
    settings = [parse_assignment(assignment) for assignment in assignments or ()]
    settings += [
        Setting(name, value, f"--{_FLAGS.get(name) or name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None
    ]
    if data is not None:
        settings.append(Setting("data", data, "--data"))
    environment = {name: text for name, text in os.environ.items() if name not in _NO_SETTINGS}
    return load_config(data=default, file=file, environment=environment, flags=settings)


def is_in_store(place: Path) -> bool:
    """Say whether a place that a command names is in an object store; a path has lost a slash of its URL."""
    return str(place).startswith(SCHEME.removesuffix("/"))


def root_of(place: Path) -> "SharedRoot":
    """Return the root at a place that a command names: a directory, or `s3://BUCKET/PREFIX`."""
    if not is_in_store(place):
        return LocalRoot(place)
    settings = config_of(NOWHERE, data=place)
    return root_at(settings.store, settings.data)


def new_place_of(place: Path) -> "NewPlace":
    """Return the place of a new application that a command names: a directory, or `s3://BUCKET/PREFIX`."""
    from penstock.history.branch import NewPlace

    settings = config_of(NOWHERE, data=place) if is_in_store(place) else None
    return NewPlace(place, "") if settings is None else NewPlace(settings.data, settings.store)


def expanded(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer, in which each group of options is replaced by its fields."""
    groups: dict[str, tuple[type[Any], list[str]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if is_dataclass(group := parameter.annotation) and isinstance(group, type):
            fields = inspect.signature(group, eval_str=True).parameters
            groups[name] = group, list(fields)
            parameters += fields.values()
        else:
            parameters.append(parameter)

    def run(**values: Any) -> None:
        for name, (group, fields) in groups.items():
            values[name] = group(**{field: values.pop(field) for field in fields})
        function(**values)

    by_name = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run
