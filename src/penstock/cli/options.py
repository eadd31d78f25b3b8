"""The options that several commands share, and the application and settings that they choose.

This module alone reads the environment. `AppOptions.load` compares the declared classes with the
stored ones, so that no command reads or writes entities whose class has changed.

A command takes a group of options as one parameter: `expanded` gives its fields to typer.
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from penstock.errors import ConfigError
from penstock.model.application import App
from penstock.process.config import Config, Setting, load_config, parse_assignment
from penstock.process.data_directory import DataDirectory
from penstock.process.loading import load_app

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

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="The application: module, module:name, a .py file or a package folder."
    ),
]
OptionalAppArgument = Annotated[
    str | None, typer.Argument(metavar="[APP]", help="The application; see penstock run.")
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory; default .penstock/<app name>."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="TOML file; default penstock.toml, if it exists."
    ),
]
PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", metavar="N", help="Parallel tasks; default: as many as cores."),
]
CoresOption = Annotated[
    int | None, typer.Option("--cores", metavar="N", help="Task slots of Spark; default: all.")
]
HostOption = Annotated[
    str | None,
    typer.Option("--host", metavar="ADDRESS", help="Where gateways listen; default 127.0.0.1."),
]
PortOption = Annotated[
    int | None, typer.Option("--port", metavar="PORT", help="Port of all gateways; default 8000.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any setting by its name; may be repeated."),
]
GatewaysOption = Annotated[
    int | None, typer.Option("--gateways", metavar="N", help="How many gateways; default 1.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
SupervisedOption = Annotated[
    bool,
    typer.Option("--supervised", hidden=True, help="Stop at the end of standard input; be quiet."),
]
FromOption = Annotated[
    int | None, typer.Option("--from", metavar="EPOCH", help="The first epoch; default 0.")
]
ToOption = Annotated[
    int | None, typer.Option("--to", metavar="EPOCH", help="The last epoch; default the newest.")
]


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The options of a command that needs a data directory: an application's, or `--data`."""

    app: OptionalAppArgument = None
    data: DataOption = None
    config: ConfigOption = None
    assignments: SetOption = None

    def load(self, **flags: str | int | None) -> tuple[App, Config]:
        """Load the application, build its settings, and check that the stored data fit it.

        Args:
            flags: Options by the name of their setting; None if not given.

        Raises:
            ConfigError: The application does not exist, or a setting is invalid.
            DefinitionError: The application is defined wrongly.
            ClassChanged: The data directory holds entities of other classes; nothing was written.
            OperationalError: The journal cannot be read.
            IntegrityError: The journal is damaged.
        """
        application, settings = self.load_unchecked(**flags)
        DataDirectory(settings.data).check_app(application)
        return application, settings

    def load_unchecked(self, **flags: str | int | None) -> tuple[App, Config]:
        """Do the same without the check, for a command that reads no entities."""
        assert self.app is not None, "the command requires an application"
        application = load_app(self.app)
        return application, self._settings(default_data(application.name), **flags)

    def folder(self, default: Path = NOWHERE, hint: str = "") -> Path:
        """Return the data directory.

        Args:
            default: The directory when the options name none.
            hint: The end of the error message.

        Raises:
            ConfigError: The options name no directory, and there is no default.
        """
        if self.app is not None:
            return self.load_unchecked()[1].data
        chosen = self._settings(default).data
        if chosen == NOWHERE:
            raise ConfigError(f"name the application, or give its data directory as --data{hint}")
        return chosen

    def _settings(self, default: Path, **flags: str | int | None) -> Config:
        return config_of(
            default, data=self.data, file=self.config, assignments=self.assignments, **flags
        )


@dataclass(frozen=True, slots=True)
class AppOptions(DataOptions):
    """The options of a command that needs an application."""

    app: AppArgument


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

    Raises:
        ConfigError: Settings are invalid; the message names all of them.
    """
    settings = [parse_assignment(assignment) for assignment in assignments or ()]
    settings += [
        Setting(name, value, f"--{_FLAGS.get(name) or name.replace('_', '-')}")
        for name, value in flags.items()
        if value is not None
    ]
    if data is not None:
        settings.append(Setting("data", data, "--data"))
    return load_config(data=default, file=file, environment=os.environ, flags=settings)


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

    by_name = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature(by_name)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run
