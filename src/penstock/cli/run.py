"""`penstock run`: all of an application in the foreground, kept running until a signal stops it."""

from pathlib import Path
from typing import Final

from rich.console import Console

from penstock.cli.application import application_of
from penstock.cli.foreground import ROLE, Foreground
from penstock.cli.options import (
    AppArgument,
    ConfigOption,
    CoresOption,
    DataOption,
    GatewaysOption,
    HostOption,
    PartitionsOption,
    PortOption,
    SetOption,
)
from penstock.cli.processes import ChildOptions
from penstock.process import logs

HELP: Final = """Run an application: Spark, the SQL view and gateways, until SIGINT or SIGTERM.

Whatever of it dies is started again at once, and nothing is lost. The first signal lets gateways
answer what they have taken, then ends the view, then the driver after the epoch that runs. A second
one ends everything at once, which loses nothing either.

Lines of the application that would make replay differ, such as calls to other services, are warned of
first, as penstock explain does.

Settings come from a TOML file, from PENSTOCK_<NAME> in the environment and from flags; the later
ones win. In the file they have the names that --set takes: cores, gateway.port, limits.time_ms …

\b
Examples:
  penstock run examples/shop
  penstock run examples/shop --port 8000 --data /var/lib/shop --gateways 2
  penstock run shop.services:app --partitions 8 --set limits.time_ms=500
  PENSTOCK_CORES=2 penstock run examples/bank --config production.toml
"""


def run(  # noqa: PLR0913 -- one parameter for each flag
    app: AppArgument,
    port: PortOption = None,
    data: DataOption = None,
    host: HostOption = None,
    gateways: GatewaysOption = None,
    partitions: PartitionsOption = None,
    cores: CoresOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Run an application in the foreground; see `HELP`."""
    chosen = {
        "gateway.port": port,
        "gateway.host": host,
        "gateway.processes": gateways,
        "partitions": partitions,
        "cores": cores,
    }
    foreground = foreground_of(app, data, config, assignments, chosen)
    logs.configure(ROLE, foreground.settings.log_format, foreground.settings.log_level)
    foreground.run()


def foreground_of(
    app: str,
    data: Path | None,
    config: Path | None,
    assignments: list[str] | None,
    chosen: dict[str, str | int | None],
    *,
    development: bool = False,
) -> Foreground:
    """Return what runs an application with what a command line says of its settings.

    Raises:
        ConfigError: Settings cannot be used; names all of them.
        ClassChanged: The data directory holds entities of other classes.
    """
    application, settings = application_of(
        app, data=data, file=config, assignments=assignments, **chosen
    )
    told = [f"{name}={value}" for name, value in chosen.items() if value is not None]
    given = ChildOptions(app, config, [*(assignments or ()), *told], development)
    return Foreground(application, given, settings, Console(stderr=True))
