"""From the flags that several commands share to a `Config`.

The environment is read here and nowhere else.
"""

import os
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.process.config import Config, Setting, load_config, parse_assignment

DIRECTORY: Final = Path(".penstock")
_FLAGS: Final = {
    "gateway.host": "host",
    "gateway.port": "port",
    "gateway.processes": "gateways",
}
"""Flags whose names are not those of their settings."""

AppArgument = Annotated[
    str,
    typer.Argument(
        metavar="APP", help="The application: module, module:name, a .py file or a package folder."
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory; default .penstock/<app name>."),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML file; default penstock.toml, if there."),
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
    int | None, typer.Option("--port", metavar="PORT", help="Of all gateways; default 8000.")
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
    typer.Option(
        "--supervised", hidden=True, help="Stop when standard input ends, and say little."
    ),
]


def default_data(name: str) -> Path:
    """Return where the application of a name keeps its data."""
    return DIRECTORY / name


def config_of(
    default: Path,
    *,
    data: Path | None = None,
    file: Path | None = None,
    assignments: list[str] | None = None,
    **chosen: str | int | None,
) -> Config:
    """Build the configuration of a command from file, environment and its flags.

    Args:
        default: The data directory where nobody names one.
        data: `--data`.
        file: `--config`.
        assignments: What was given with `--set`.
        chosen: Flags by the name of their setting; None where not given.

    Raises:
        ConfigError: Something cannot be used; names all of it.
    """
    flags = [parse_assignment(one) for one in assignments or ()]
    flags += [
        Setting(name, value, f"--{_FLAGS.get(name) or name.replace('_', '-')}")
        for name, value in chosen.items()
        if value is not None
    ]
    if data is not None:
        flags.append(Setting("data", data, "--data"))
    return load_config(data=default, file=file, environment=os.environ, flags=flags)
